"""A tensor of a GGUF file, before it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

# Routers and short convolutions stay float32 beside the vectors, as llama.cpp's own converter keeps them.
_ALWAYS_F32 = ("ffn_gate_inp", "ssm_conv1d")


@dataclass(frozen=True, slots=True)
class Tensor:
    """Its ``name`` in the file with its ending, its ``shape``, and what reads it as float32 when its turn comes.

    One that is stored as ``raw`` is read as the bytes of its rows instead, and written as they are.
    """

    name: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]
    raw: gguf.GGMLQuantizationType | None = None

    def stored(self, kind: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
        """How it is stored in a file whose matrices are of ``kind``."""
        if self.raw is not None:
            return self.raw
        part = self.name.split(".")[-2] if "." in self.name else self.name
        plain = len(self.shape) < 2 or part in _ALWAYS_F32 or self.name.endswith(".bias")
        return gguf.GGMLQuantizationType.F32 if plain else kind

    def announce(self, writer: gguf.GGUFWriter, kind: gguf.GGMLQuantizationType) -> None:
        """Enter it into the file's table; the writer takes the shape of other types than float32 in bytes."""
        kind = self.stored(kind)
        if kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor_info(self.name, self.shape, np.dtype(np.float32), int(np.prod(self.shape)) * 4)
        else:
            in_bytes = self.byte_shape(kind)
            writer.add_tensor_info(self.name, in_bytes, np.dtype(np.uint8), int(np.prod(in_bytes)), raw_dtype=kind)

    def byte_shape(self, kind: gguf.GGMLQuantizationType) -> tuple[int, ...]:
        """Its shape with the bytes of a row in the place of its values."""
        block, size = gguf.GGML_QUANT_SIZES[kind]
        return (*self.shape[:-1], self.shape[-1] // block * size)

    def values(self, kind: gguf.GGMLQuantizationType) -> NDArray[Any]:
        """What is written, in a file whose matrices are of ``kind``; ``ValueError`` where it has another shape."""
        found = self.read()
        wanted = self.shape if self.raw is None else self.byte_shape(self.raw)
        if found.shape != wanted:
            raise ValueError(f"{self.name} has shape {found.shape}, config.json says {wanted}")
        found = np.ascontiguousarray(found)
        return found if self.raw is not None else gguf.quantize(found, self.stored(kind))
