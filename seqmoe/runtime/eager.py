"""The MoE of a layer one expert after another, as plain matrix products: the eager mode of figure 4."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import linear, silu

from seqmoe.adapters.base import ExpertFormat
from seqmoe.runtime.placement import ExpertPool


def experts_one_by_one(
    hidden: NDArray[np.float32],
    pool: ExpertPool,
    slots: NDArray[np.int32],
    weights: NDArray[np.float32],
    contribution: NDArray[np.float32],
) -> None:
    """As `seqmoe.core.moe.moe_experts`: three GEMMs for each distinct slot, in the type of its weights."""
    tokens = torch.from_numpy(hidden).to(pool.format.torch_dtype)
    for slot in np.unique(slots[slots >= 0]).tolist():
        row, choice = np.nonzero(slots == slot)
        gate_up_bias = None if pool.gate_up_bias is None else pool.gate_up_bias[slot]
        down_bias = None if pool.down_bias is None else pool.down_bias[slot]
        inner = gated(linear(tokens[row], pool.gate_up[slot], gate_up_bias), pool.format)
        out = linear(inner, pool.down[slot], down_bias).float().numpy()
        contribution[row, choice] = weights[row, choice][:, None] * out


def gated(gate_up: torch.Tensor, format: ExpertFormat) -> torch.Tensor:
    """The expert's activation, [tokens, 2 * width] -> [tokens, width]; see `seqmoe.adapters.base.ExpertFormat`."""
    gate, up = gate_up.chunk(2, dim=-1)
    if format.activation == "swiglu":
        return silu(gate) * up
    gate, up = gate.clamp(max=format.limit), up.clamp(-format.limit, format.limit)
    if format.activation == "swiglu_clamped":
        return silu(gate) * up
    return (up + 1) * gate * torch.sigmoid(format.alpha * gate)
