"""What the runtime and trace collection must know of a model family, and the table of families."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from seqmoe.adapters.layout import StoredLayout
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.geometry import Geometry


class ExpertsModule(Protocol):
    """A layer's fused experts in Transformers, and what the runtime attaches to them."""

    seqmoe_layer: int
    seqmoe_router: Any


ACTIVATIONS = ("swiglu", "swiglu_clamped", "swiglu_oai")
ITEM_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class ExpertFormat:
    """One gated expert as pools hold it and the kernel reads it, whatever its family and its checkpoint's layout.

    ``gate_up`` [2 * width, hidden] has the gate's rows first, then those of up; ``down`` [hidden, width]; with ``bias``
    also ``gate_up_bias`` [2 * width] and ``down_bias`` [hidden], of the weights' type. ``activation`` "swiglu" is
    silu(gate) * up; "swiglu_clamped" clamps gate to at most ``limit`` and up to +-``limit`` before that (DeepSeek-V4);
    "swiglu_oai" clamps likewise and is (up + 1) * gate * sigmoid(``alpha`` * gate) (GPT-OSS).
    """

    hidden: int
    width: int
    dtype: str
    activation: str = "swiglu"
    limit: float = 0.0
    alpha: float = 0.0
    bias: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise InputError(f"dtype {self.dtype!r} is not computed; choose {' or '.join(ITEM_BYTES)}")
        if self.activation not in ACTIVATIONS:
            raise InputError(f"activation {self.activation!r} is unknown; {nearest(self.activation, ACTIVATIONS)}")

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """Shape of each part of one expert, by its name in a pool."""
        parts: dict[str, tuple[int, ...]] = {
            "gate_up": (2 * self.width, self.hidden),
            "down": (self.hidden, self.width),
        }
        if self.bias:
            parts |= {"gate_up_bias": (2 * self.width,), "down_bias": (self.hidden,)}
        return parts

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert, biases included."""
        return sum(math.prod(shape) for shape in self.parts.values()) * ITEM_BYTES[self.dtype]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The weights' type in PyTorch."""
        return torch.float32 if self.dtype == "float32" else torch.bfloat16


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
    layers that carry a state or a compressed context from token to token are not. ``static_cache`` says whether the
    key-value cache can lie at fixed addresses. Experts lie in ``block`` of a decoder layer in a checkpoint, in one of
    ``layouts``; ``module_layout`` is that of Transformers' own experts module. ``quantisations`` are the methods whose
    experts a layout unpacks, and whose other weights are not quantised.
    """

    name: str
    packs: bool
    static_cache: bool
    block: str
    layouts: tuple[StoredLayout, ...]
    module_layout: StoredLayout
    quantisations: tuple[str, ...]

    def geometry(self, config: Any, dtype: str = "float32") -> Geometry:
        """Geometry for the runtime; ``expert_bytes`` in its own format, biases included.

        Raises `InputError` for a variant that the runtime's kernels do not compute. Collection asks for `shape`.
        """
        ...

    def expert_format(self, config: Any, dtype: str) -> ExpertFormat:
        """What the runtime's pools hold for this model, in ``dtype`` "float32" or "bfloat16".

        Raises `InputError` for a variant that the runtime's kernels do not compute.
        """
        ...

    def moe_layers(self, config: Any) -> tuple[int, ...]:
        """Numbers of the decoder layers that are MoE layers, from 0; the others are dense."""
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
