"""The MoE of a layer through slots: by kernels over all of its experts, or one expert after another."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import linear

from seqmoe.runtime.cuda.pool import SlotPool
from seqmoe.runtime.eager import gated
from seqmoe.runtime.kernels import experts


class LayerExperts(Protocol):
    """How a layer's experts are computed."""

    def __call__(self, hidden: torch.Tensor, slot_ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] through ``slot_ids`` int32 [tokens, choices], mixed by ``weights`` -> [tokens, hidden]."""


class FusedExperts:
    """Two kernels a layer, which read slot ids on the device. All layers share the workspace."""

    def __init__(self, pool: SlotPool, rows: int) -> None:
        self._weights = pool.weights
        self._workspace = experts.Workspace.of(rows, pool.format.shape.width, pool.parts["gate_up"].device)

    def __call__(self, hidden: torch.Tensor, slot_ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See `LayerExperts`."""
        out = torch.empty_like(hidden, memory_format=torch.contiguous_format)
        experts.launch(self._weights, hidden.contiguous(), slot_ids, weights.contiguous(), self._workspace, out)
        return out


class ExpertsOneByOne:
    """Plain matrix products for one expert after another, whose slots the host reads: the eager mode of figure 4."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool

    def __call__(self, hidden: torch.Tensor, slot_ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See `LayerExperts`."""
        out = torch.zeros_like(hidden, dtype=torch.float32)
        for token, slots in enumerate(slot_ids.tolist()):
            for choice, slot in enumerate(slots):
                out[token] += weights[token, choice].float() * self._one(hidden[token], slot).float()
        return out.to(hidden.dtype)

    def _one(self, state: torch.Tensor, slot: int) -> torch.Tensor:
        pool = self._pool
        gate_up, down = (pool.format.matrix(pool.parts, name, slot) for name in ("gate_up", "down"))
        biases = [pool.parts.get(f"{name}_bias") for name in ("gate_up", "down")]
        bias = [None if part is None else part[slot] for part in biases]
        inner = gated(linear(state[None].to(gate_up.dtype), gate_up, bias[0]), pool.format.shape)
        return linear(inner, down, bias[1])[0]
