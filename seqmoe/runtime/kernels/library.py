"""The experts of one layer over a slot pool, by our kernels or by a library's.

Compute transparency (paper, section 8.2): a pool is an ordinary weight [slots, ...] and slot ids are ordinary expert
ids, so Transformers' experts functions compute on it as they are, on a GPU as on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from seqmoe.runtime.kernels.weights import ExpertWeights
from seqmoe.spec.errors import InputError, nearest

EXPERTS = ("triton", "grouped_mm", "batched_mm")


class ExpertsFunction(Protocol):
    """[tokens, hidden] of hidden states, slot ids and top-k weights [tokens, choices], in the hidden states' type."""

    def __call__(
        self, hidden_states: torch.Tensor, slot_ids: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Compute one layer."""
        ...


def experts_function(name: str, weights: ExpertWeights, rows: int) -> ExpertsFunction:
    """The function of that name over a pool; for "triton", of at most ``rows`` = tokens * choices.

    An `InputError` for an unknown name, and for weights that a library does not compute in their format.
    """
    if name not in EXPERTS:
        raise InputError(f"experts kernel {name!r} is unknown; {nearest(name, EXPERTS)}")
    if name == "triton":
        from seqmoe.runtime.kernels import experts  # needs Triton, the others do not

        workspace = experts.Workspace.of(rows, weights.width, weights.gate_up.device)
        return _OurExperts(experts, weights, workspace)
    if weights.format != "dense":
        raise InputError(f"experts kernel {name!r} computes dense weights, not {weights.format!r}; choose 'triton'")
    return _LibraryExperts(ALL_EXPERTS_FUNCTIONS[name], weights)


@dataclass(frozen=True, slots=True, eq=False)
class _OurExperts:
    experts: Any
    weights: ExpertWeights
    workspace: Any

    def __call__(
        self, hidden_states: torch.Tensor, slot_ids: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        out = torch.empty_like(hidden_states)
        inner = self.experts.Workspace(self.workspace.inner[: slot_ids.numel()])
        self.experts.launch(self.weights, hidden_states, slot_ids, top_k_weights, inner, out)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class _LibraryExperts:
    """A pool in the place of the module whose forward the function is (`transformers.integrations.moe`)."""

    function: Any
    weights: ExpertWeights
    has_gate: bool = True
    is_transposed: bool = False
    is_concatenated: bool = True
    has_post_expert_norm: bool = False
    _is_expert_parallel: bool = False

    @property
    def num_experts(self) -> int:
        return self.weights.slots

    @property
    def has_bias(self) -> bool:
        return self.weights.gate_up_bias is not None

    @property
    def gate_up_proj(self) -> torch.Tensor:
        return self.weights.gate_up

    @property
    def down_proj(self) -> torch.Tensor:
        return self.weights.down

    @property
    def gate_up_proj_bias(self) -> torch.Tensor | None:
        return self.weights.gate_up_bias

    @property
    def down_proj_bias(self) -> torch.Tensor | None:
        return self.weights.down_bias

    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        if self.weights.activation != "swiglu":
            limit = self.weights.limit
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        if self.weights.activation == "swiglu_oai":
            return (up + 1) * gate * torch.sigmoid(self.weights.alpha * gate)
        return torch.nn.functional.silu(gate) * up

    def __call__(
        self, hidden_states: torch.Tensor, slot_ids: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        # A miss without a slot has slot id -1, which a library would take for the last slot.
        placed = slot_ids >= 0
        weights = top_k_weights.to(hidden_states.dtype) * placed
        out: torch.Tensor = self.function(self, hidden_states, slot_ids.clamp(min=0), weights)
        return out
