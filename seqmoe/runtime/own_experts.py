"""Experts of a model that Transformers has loaded and nobody has offloaded: the same kernel, on the model's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqmoe.adapters.base import family_of
from seqmoe.core.moe import moe_experts, reduce_contributions
from seqmoe.runtime.arrays import floats
from seqmoe.runtime.placement import ExpertPool
from seqmoe.spec.errors import InputError


def own_experts(
    module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """The MoE of one layer, [T, hidden] -> [T, hidden], from the module's own parameters.

    Raises `InputError` for a family whose parameters have another layout than the kernel reads: `seqmoe.offload`
    rearranges them once, for full load too.
    """
    pool = _pool(module)
    weights, hidden = floats(top_k_weights), floats(hidden_states)
    experts = top_k_index.numpy().astype(np.int32)
    contribution = np.empty((*experts.shape, hidden.shape[1]), dtype=np.float32)
    out = np.empty_like(hidden)
    moe_experts(hidden, *pool.arrays, experts, weights, contribution, **pool.options)
    reduce_contributions(contribution, out)
    return torch.from_numpy(out).to(hidden_states.dtype)


def _pool(module: Any) -> ExpertPool:
    """A view of the module's parameters."""
    family = family_of(module.config.model_type)
    if not family.module_layout.canonical:
        raise InputError(
            f"model_type {module.config.model_type!r}: its experts lie in another layout than the kernel reads; "
            "call seqmoe.offload(model, system='full') once, which rearranges them"
        )
    first = next(module.parameters())
    if first.device.type != "cpu":
        raise InputError(f"experts on {first.device}: experts_implementation 'seqmoe' computes on the CPU")
    format = family.expert_format(module.config, str(first.dtype).removeprefix("torch."))
    return ExpertPool(format, module.gate_up_proj.detach(), module.down_proj.detach())
