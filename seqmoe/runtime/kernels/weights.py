"""Expert weights in slots, in the formats that models ship in; what is computed with them is float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqmoe.adapters.base import ACTIVATIONS
from seqmoe.spec.errors import InputError, nearest

FORMATS = ("dense", "fp8", "mxfp4")
# Rows and columns that share a scale in FP8, and columns that do in MXFP4.
FP8_BLOCK = 128
MXFP4_BLOCK = 32


@dataclass(frozen=True, slots=True, eq=False)
class ExpertWeights:
    """One pool of gated experts, [slots, ...] each, as `seqmoe.adapters.base.ExpertFormat` orders rows.

    ``format`` "dense": ``gate_up`` [2 * width, hidden] and ``down`` [hidden, width] are float32, bfloat16 or float16.

    "fp8" (Qwen3-30B-A3B-FP8): they are float8_e4m3fn, or its bytes; the scales, float32, multiply blocks of 128 x 128,
    ``gate_up_scale`` [2 * ceil(width / 128), ceil(hidden / 128)], the gate's first, ``down_scale`` [ceil(hidden / 128),
    ceil(width / 128)].

    "mxfp4" (GPT-OSS; DeepSeek-V4-Flash's routed experts): bytes of two e2m1 values, the first in the low half,
    ``gate_up`` [2 * width, hidden / 2], ``down`` [hidden, width / 2]; the scales, e8m0 or its bytes, multiply 32
    columns of a row, ``gate_up_scale`` [2 * width, hidden / 32], ``down_scale`` [hidden, width / 32].

    Biases ``gate_up_bias`` [2 * width] and ``down_bias`` [hidden] are dense. ``activation``, ``limit`` and ``alpha``
    are those of `ExpertFormat`.
    """

    format: str
    hidden: int
    width: int
    gate_up: torch.Tensor
    down: torch.Tensor
    gate_up_scale: torch.Tensor | None = None
    down_scale: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    activation: str = "swiglu"
    limit: float = 0.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InputError(f"weight format {self.format!r} is not computed; {nearest(self.format, FORMATS)}")
        if self.activation not in ACTIVATIONS:
            raise InputError(f"activation {self.activation!r} is unknown; {nearest(self.activation, ACTIVATIONS)}")
        for name, shape in part_shapes(self.format, self.hidden, self.width, self.gate_up_bias is not None).items():
            part = getattr(self, name)
            if part is None or part.shape != (self.slots, *shape) or not part.is_contiguous():
                found = None if part is None else list(part.shape)
                raise ValueError(f"{name}: {found} instead of [slots, {', '.join(map(str, shape))}] without gaps")

    @property
    def slots(self) -> int:
        """Slots of the pool."""
        return len(self.gate_up)


def part_dtype(format: str, name: str, dense: torch.dtype) -> torch.dtype:
    """The type of a part: ``dense`` for matrices of that format and all biases; packed matrices are bytes."""
    if format == "dense" or name.endswith("_bias"):
        return dense
    return torch.float32 if format == "fp8" and name.endswith("_scale") else torch.uint8


def part_shapes(format: str, hidden: int, width: int, bias: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of one expert's parts in a format; ``ValueError`` for sizes that MXFP4 has no whole blocks for."""
    shapes: dict[str, tuple[int, ...]] = {"gate_up": (2 * width, hidden), "down": (hidden, width)}
    if format == "fp8":
        wide, high = -(-hidden // FP8_BLOCK), -(-width // FP8_BLOCK)
        shapes |= {"gate_up_scale": (2 * high, wide), "down_scale": (wide, high)}
    if format == "mxfp4":
        if hidden % MXFP4_BLOCK or width % MXFP4_BLOCK:
            raise ValueError(f"{hidden} x {width}: MXFP4 has blocks of {MXFP4_BLOCK}")
        shapes = {"gate_up": (2 * width, hidden // 2), "down": (hidden, width // 2)}
        shapes |= {"gate_up_scale": (2 * width, hidden // MXFP4_BLOCK), "down_scale": (hidden, width // MXFP4_BLOCK)}
    if bias:
        shapes |= {"gate_up_bias": (2 * width,), "down_bias": (hidden,)}
    return shapes
