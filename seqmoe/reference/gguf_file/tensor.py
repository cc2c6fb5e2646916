"""A tensor of a GGUF file, before it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gguf
import numpy as np
from numpy.typing import NDArray

# Routers and short convolutions stay float32 beside the vectors, as llama.cpp's own converter keeps them.
_ALWAYS_F32 = ("ffn_gate_inp", "ssm_conv1d")


@dataclass(frozen=True, slots=True)
class Tensor:
    """Its ``name`` in the file with its ending, its ``shape``, and what reads it as float32 when its turn comes."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]

    def stored(self, kind: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
        """How it is stored in a file whose matrices are of ``kind``."""
        part = self.name.split(".")[-2] if "." in self.name else self.name
        plain = len(self.shape) < 2 or part in _ALWAYS_F32 or self.name.endswith(".bias")
        return gguf.GGMLQuantizationType.F32 if plain else kind

    def announce(self, writer: gguf.GGUFWriter, kind: gguf.GGMLQuantizationType) -> None:
        """Enter it into the file's table; the writer takes the shape of other types than float32 in bytes."""
        kind = self.stored(kind)
        item = 4 if kind == gguf.GGMLQuantizationType.F32 else 2
        size = int(np.prod(self.shape)) * item
        if item == 4:
            writer.add_tensor_info(self.name, self.shape, np.dtype(np.float32), size)
        else:
            in_bytes = (*self.shape[:-1], self.shape[-1] * item)
            writer.add_tensor_info(self.name, in_bytes, np.dtype(np.uint8), size, raw_dtype=kind)
