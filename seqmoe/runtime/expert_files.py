"""Where each expert's weights lie in a checkpoint's files, and the way from there into a pool, one expert at a time."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.adapters.base import ExpertFormat, Family
from seqmoe.adapters.layout import Piece, StoredLayout
from seqmoe.runtime.placement import ExpertPool
from seqmoe.runtime.stored import DTYPES, StoredTensor
from seqmoe.spec.errors import InputError

# What precedes the decoder layers: a language model's, that of one inside a composite model (two spellings), none.
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")


@dataclass(frozen=True, slots=True, eq=False)
class ExpertFiles:
    """The pieces of every expert: ``sources`` int64 [keys, pieces, 2] holds (index into ``files``, byte offset).

    ``dtypes`` are the stored types of the layout's pieces, ``sizes`` the bytes of one expert's piece as stored.
    """

    format: ExpertFormat
    layout: StoredLayout
    files: tuple[Path, ...]
    sources: NDArray[np.int64]
    dtypes: tuple[str, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Stored bytes of each piece of one expert."""
        numbers = [_numbers(piece, self.format) for piece in self.layout.pieces]
        return tuple(n * DTYPES[dtype].itemsize for n, dtype in zip(numbers, self.dtypes, strict=True))

    @property
    def as_in_pool(self) -> tuple[bool, ...]:
        """For each piece, whether its stored bytes are those of a pool."""
        pieces = zip(self.layout.pieces, self.dtypes, strict=True)
        return tuple(piece.canonical and DTYPES[dtype] == self.format.torch_dtype for piece, dtype in pieces)

    def read_into(self, pool: ExpertPool) -> None:
        """Read every expert into the pool at its key. Beside the pool, one piece of one expert is in memory.

        Raises `InputError` naming the file where it ends too early.
        """
        pieces, parts = self.layout.pieces, pool.tensors
        buffers = [
            None if same else torch.empty(piece.stored_shape(self.format.parts[piece.part]), dtype=DTYPES[dtype])
            for piece, same, dtype in zip(pieces, self.as_in_pool, self.dtypes, strict=True)
        ]
        with ExitStack() as stack:
            streams = [stack.enter_context(file.open("rb", buffering=0)) for file in self.files]
            for key, sources in enumerate(self.sources.tolist()):
                for piece, buffer, (file, offset) in zip(pieces, buffers, sources, strict=True):
                    part = parts[piece.part][key]
                    target = part[piece.rows(tuple(part.shape))] if buffer is None else buffer
                    self._read(streams[file].fileno(), file, offset, target)
                    if buffer is not None:
                        piece.place(buffer, part)

    def _read(self, descriptor: int, file: int, offset: int, target: torch.Tensor) -> None:
        view = target.view(-1).view(torch.uint8).numpy().data
        while view:
            count = os.preadv(descriptor, [view], offset)
            if count == 0:
                raise InputError(f"{self.files[file]}: ends at byte {offset}, inside an expert's weights")
            view, offset = view[count:], offset + count


def locate_experts(stored: dict[str, StoredTensor], family: Family, config: Any, dtype: str) -> ExpertFiles:
    """Find the experts of every MoE layer among a checkpoint's tensors.

    Raises `InputError`, naming file and tensor, where one is missing, has another shape than the configuration says, or
    a type that is not loaded.
    """
    format, layers = family.expert_format(config, dtype), family.moe_layers(config)
    experts = family.geometry(config, dtype).experts
    layout, stem = _find(stored, family, layers[0])
    files = tuple(sorted({tensor.file for tensor in stored.values()}))
    index = {file: number for number, file in enumerate(files)}
    sources = np.empty((len(layers) * experts, len(layout.pieces), 2), dtype=np.int64)
    dtypes: list[str] = []
    for key in range(len(sources)):
        layer, expert = divmod(key, experts)
        for number, piece in enumerate(layout.pieces):
            shape = piece.stored_shape(format.parts[piece.part])
            name = stem.format(layer=layers[layer]) + piece.name.format(expert=expert)
            tensor = _checked(stored, name, (experts, *shape) if piece.fused else shape)
            if key == 0:
                dtypes.append(tensor.dtype)
            elif tensor.dtype != dtypes[number]:
                raise InputError(f"{tensor.file}: {name!r} is {tensor.dtype}, the first expert's {dtypes[number]}")
            within = expert * (tensor.bytes // experts) if piece.fused else 0
            sources[key, number] = index[tensor.file], tensor.offset + within
    return ExpertFiles(format, layout, files, sources, tuple(dtypes))


def _find(stored: dict[str, StoredTensor], family: Family, layer: int) -> tuple[StoredLayout, str]:
    """The layout that the checkpoint has, and what its tensors' names start with."""
    stems = [f"{prefix}layers.{{layer}}.{block}." for prefix in _PREFIXES for block in (family.block, "mlp")]
    for stem in stems:
        for layout in family.layouts:
            if stem.format(layer=layer) + layout.pieces[0].name.format(expert=0) in stored:
                return layout, stem
    expected = " or ".join(repr(stems[0].format(layer=layer) + layout.pieces[0].name) for layout in family.layouts)
    folder = next(iter(stored.values())).file.parent
    raise InputError(f"{folder}: no tensor {expected}; experts of {family.name!r} are looked for under these names")


def _checked(stored: dict[str, StoredTensor], name: str, shape: tuple[int, ...]) -> StoredTensor:
    if name not in stored:
        folder = next(iter(stored.values())).file.parent
        raise InputError(f"{folder}: tensor {name!r} is in none of its files; is the checkpoint complete?")
    tensor = stored[name]
    if tensor.shape != shape:
        raise InputError(f"{tensor.file}: {name!r} has shape {tensor.shape}, but config.json makes it {shape}")
    if tensor.dtype not in DTYPES:
        raise InputError(f"{tensor.file}: {name!r} is {tensor.dtype}; experts are loaded from {', '.join(DTYPES)}")
    return tensor


def _numbers(piece: Piece, format: ExpertFormat) -> int:
    return int(np.prod(piece.stored_shape(format.parts[piece.part])))
