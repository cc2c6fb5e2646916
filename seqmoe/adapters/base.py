"""What the runtime and trace collection must know of a model family, and the table of families."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.geometry import Geometry


class ExpertsModule(Protocol):
    """A layer's fused experts in Transformers, and what the runtime attaches to them."""

    gate_up_proj: torch.Tensor
    down_proj: torch.Tensor
    seqmoe_layer: int
    seqmoe_router: Any


class Family(Protocol):
    """One MoE model family of Transformers."""

    name: str

    def geometry(self, config: Any) -> Geometry:
        """Geometry of a model with this configuration; ``expert_bytes`` for float32 weights.

        Raises `InputError` for a variant that the runtime's kernels do not compute.
        """
        ...

    def experts(self, model: Any) -> list[ExpertsModule]:
        """The experts module of each MoE layer, in layer order."""
        ...


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """Sizes of one gated expert: ``gate_up`` [2 * width, hidden] and ``down`` [hidden, width]."""

    hidden: int
    width: int

    @property
    def numbers(self) -> int:
        """Weights of one expert."""
        return 3 * self.hidden * self.width


_FAMILIES = {"qwen3_moe": "seqmoe.adapters.qwen3_moe"}


def family_of(model_type: str) -> Family:
    """The family of a Transformers ``model_type``; an unsupported one is refused by name."""
    if model_type not in _FAMILIES:
        raise InputError(f"model_type {model_type!r} is not supported by the runtime; {nearest(model_type, _FAMILIES)}")
    family: Family = importlib.import_module(_FAMILIES[model_type]).FAMILY
    return family
