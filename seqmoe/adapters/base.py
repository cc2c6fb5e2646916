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


@dataclass(frozen=True, slots=True)
class Routing:
    """What a router decided for its tokens.

    ``logits`` [tokens, experts] before any score function or bias; ``weights`` and ``indices`` [tokens, k] in the
    router's order.
    """

    logits: torch.Tensor
    weights: torch.Tensor
    indices: torch.Tensor


class Family(Protocol):
    """One MoE model family of Transformers. ``config`` is the text model's own; `geometry` and `shape` take any.

    ``packs`` says whether sequences that lie one behind another in a row are isolated by their position ids alone;
    layers that carry a state or a compressed context from token to token are not.
    """

    name: str
    packs: bool

    def geometry(self, config: Any) -> Geometry:
        """Geometry for the runtime; ``expert_bytes`` for float32 weights.

        Raises `InputError` for a variant that the runtime's kernels do not compute. Collection asks for `shape`.
        """
        ...

    def shape(self, config: Any) -> Geometry:
        """Geometry of any model of the family; ``expert_bytes`` for float32 weights, biases not counted."""
        ...

    def packed_mask(self, model: Any, positions: torch.Tensor) -> Any:
        """``attention_mask`` for sequences in one row, whose ``positions`` [1, tokens] start anew with each.

        None where the model makes the right mask of the positions by itself.
        """
        ...

    def experts(self, model: Any) -> list[ExpertsModule]:
        """The experts module of each MoE layer, in layer order."""
        ...

    def routers(self, model: Any) -> list[torch.nn.Module]:
        """The router module of each MoE layer, in layer order."""
        ...

    def routing(self, output: Any) -> Routing:
        """Read what a router module returned."""
        ...

    def router_kind(self, config: Any) -> str:
        """How the routers turn logits into weights: one of `seqmoe.spec.trace.ROUTERS`."""
        ...

    def hash_layers(self, config: Any) -> tuple[int, ...]:
        """MoE layers whose experts follow from the token alone, so that no forecast is needed for them."""
        ...

    def early_choice(self, router: Any, state: torch.Tensor, token_ids: torch.Tensor, count: int) -> torch.Tensor:
        """The ``count`` experts that ``router`` would choose on another state than its own, best first.

        ``state`` [tokens, hidden] is what the layer before gave to its router, ``token_ids`` [tokens]; returns int64
        [tokens, count].
        """
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


_FAMILIES = {
    name: f"seqmoe.adapters.{module}"
    for name, module in {
        "deepseek_v4": "deepseek_v4",
        "gpt_oss": "gpt_oss",
        "mixtral": "mixtral",
        "olmoe": "olmoe",
        "qwen3_5_moe": "qwen3_5_moe",
        "qwen3_5_moe_text": "qwen3_5_moe",
        "qwen3_moe": "qwen3_moe",
    }.items()
}


def family_of(model_type: str) -> Family:
    """The family of a Transformers ``model_type``; an unsupported one is refused by name."""
    if model_type not in _FAMILIES:
        raise InputError(f"model_type {model_type!r} is not supported; {nearest(model_type, _FAMILIES)}")
    family: Family = importlib.import_module(_FAMILIES[model_type]).FAMILY
    return family
