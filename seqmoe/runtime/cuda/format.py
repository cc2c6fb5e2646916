"""How the experts of a pool are stored: as a checkpoint has them, so that a link moves no byte more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from seqmoe.adapters.base import ExpertFormat
from seqmoe.adapters.mxfp4 import unpack
from seqmoe.runtime.kernels.weights import FP8_BLOCK, MXFP4_BLOCK, ExpertWeights, part_dtype, part_shapes

# By the formats that models are declared in.
STORED = {"bf16": "dense", "fp8": "fp8", "mxfp4": "mxfp4"}


@dataclass(frozen=True, slots=True)
class PoolFormat:
    """``shape`` says what an expert computes, ``stored`` how its matrices lie: a format of `ExpertWeights`.

    "dense" parts and all biases are of the shape's type, packed ones bytes.
    """

    shape: ExpertFormat
    stored: str = "dense"

    @property
    def parts(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of each part of one expert, in the order in which they are copied."""
        shapes = part_shapes(self.stored, self.shape.hidden, self.shape.width, self.shape.bias)
        return {name: (shape, part_dtype(self.stored, name, self.shape.torch_dtype)) for name, shape in shapes.items()}

    @property
    def part_bytes(self) -> dict[str, int]:
        """Bytes of each part of one expert."""
        return {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in self.parts.items()}

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert, scales and biases included."""
        return sum(self.part_bytes.values())

    def weights(self, parts: dict[str, torch.Tensor]) -> ExpertWeights:
        """A pool of parts [slots, ...] as the kernels read it."""
        shape = self.shape
        how: dict[str, Any] = {"activation": shape.activation, "limit": shape.limit, "alpha": shape.alpha, **parts}
        return ExpertWeights(self.stored, shape.hidden, shape.width, **how)

    def empty(self, entries: int, device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
        """Parts of ``entries`` experts, not initialised."""
        return {
            name: torch.empty((entries, *shape), dtype=dtype, device=device)
            for name, (shape, dtype) in self.parts.items()
        }

    def matrix(self, parts: dict[str, torch.Tensor], name: str, slot: int) -> torch.Tensor:
        """``gate_up`` or ``down`` of a slot as a dense matrix of the shape's type: what "eager" execution computes."""
        weight = parts[name][slot]
        if self.stored == "dense":
            return weight
        scale = parts[f"{name}_scale"][slot]
        if self.stored == "mxfp4":
            rows, columns = weight.shape
            blocks = weight.view(rows, columns * 2 // MXFP4_BLOCK, MXFP4_BLOCK // 2)
            return unpack(blocks.cpu(), scale.cpu()).to(weight.device, self.shape.torch_dtype)
        rows, columns = weight.shape
        halves = 2 if name == "gate_up" else 1
        high = scale.repeat_interleave(FP8_BLOCK, 1)[:, :columns].view(halves, -1, columns)
        tall = high.repeat_interleave(FP8_BLOCK, 1)[:, : rows // halves].reshape(rows, columns)
        return (weight.view(torch.float8_e4m3fn).float() * tall).to(self.shape.torch_dtype)
