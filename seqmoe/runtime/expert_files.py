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
from seqmoe.adapters.layout import StoredLayout
from seqmoe.runtime.placement import ExpertPool
from seqmoe.runtime.stored import DTYPES, StoredTensor
from seqmoe.spec.errors import InputError

# What precedes the decoder layers: a language model's, that of one inside a composite model (two spellings), none.
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")


_DTYPES = DTYPES | {"U8": torch.uint8}


@dataclass(frozen=True, slots=True, eq=False)
class ExpertFiles:
    """Where every expert is: ``sources`` int64 [keys, tensors, 2] holds (index into ``files``, byte offset).

    The tensors are those of the layout's pieces, one behind another; ``dtypes`` are their stored types.
    """

    format: ExpertFormat
    layout: StoredLayout
    files: tuple[Path, ...]
    sources: NDArray[np.int64]
    dtypes: tuple[str, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each tensor of one expert as stored."""
        parts = self.format.parts
        return tuple(shape for piece in self.layout.pieces for _, shape in piece.tensors(parts[piece.part]))

    @property
    def as_in_pool(self) -> bool:
        """Whether the stored bytes are those of a pool, so that experts can be read straight into slots."""
        return self.layout.canonical and all(_DTYPES[dtype] == self.format.torch_dtype for dtype in self.dtypes)

    def read_into(self, pool: ExpertPool) -> None:
        """Read every expert into the pool at its key. Beside the pool, at most one expert is in memory.

        Raises `InputError` naming the file where it ends too early.
        """
        buffers = [
            torch.empty(shape, dtype=_DTYPES[dtype]) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]
        parts, direct = pool.tensors, self.as_in_pool
        with ExitStack() as stack:
            streams = [stack.enter_context(file.open("rb", buffering=0)) for file in self.files]
            for key, sources in enumerate(self.sources.tolist()):
                number = 0
                for piece in self.layout.pieces:
                    part = parts[piece.part][key]
                    count = 2 if piece.packed else 1
                    targets = [part[piece.rows(tuple(part.shape))]] if direct else buffers[number : number + count]
                    for target, (file, offset) in zip(targets, sources[number : number + count], strict=True):
                        self._read(streams[file].fileno(), file, offset, target)
                    if not direct:
                        piece.place(targets, part)
                    number += count

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
    layout, stem = _find(stored, family, layers[0], format.parts)
    files = tuple(sorted({tensor.file for tensor in stored.values()}))
    index = {file: number for number, file in enumerate(files)}
    wanted = [(piece, *tensor) for piece in layout.pieces for tensor in piece.tensors(format.parts[piece.part])]
    sources = np.empty((len(layers) * experts, len(wanted), 2), dtype=np.int64)
    dtypes: list[str] = []
    for key in range(len(sources)):
        layer, expert = divmod(key, experts)
        for number, (piece, pattern, shape) in enumerate(wanted):
            name = stem.format(layer=layers[layer]) + pattern.format(expert=expert)
            types = ("U8",) if piece.packed else tuple(DTYPES)
            tensor = _checked(stored, name, (experts, *shape) if piece.fused else shape, types)
            if key == 0:
                dtypes.append(tensor.dtype)
            elif tensor.dtype != dtypes[number]:
                raise InputError(f"{tensor.file}: {name!r} is {tensor.dtype}, the first expert's {dtypes[number]}")
            within = expert * (tensor.bytes // experts) if piece.fused else 0
            sources[key, number] = index[tensor.file], tensor.offset + within
    return ExpertFiles(format, layout, files, sources, tuple(dtypes))


def _find(
    stored: dict[str, StoredTensor], family: Family, layer: int, parts: dict[str, tuple[int, ...]]
) -> tuple[StoredLayout, str]:
    """The layout that the checkpoint has, and what its tensors' names start with."""
    firsts = [layout.pieces[0].tensors(parts[layout.pieces[0].part])[0][0] for layout in family.layouts]
    stems = [f"{prefix}layers.{{layer}}.{block}." for prefix in _PREFIXES for block in (family.block, "mlp")]
    for stem in stems:
        for layout, first in zip(family.layouts, firsts, strict=True):
            if stem.format(layer=layer) + first.format(expert=0) in stored:
                return layout, stem
    expected = " or ".join(repr(stems[0].format(layer=layer) + first) for first in firsts)
    folder = next(iter(stored.values())).file.parent
    raise InputError(f"{folder}: no tensor {expected}; experts of {family.name!r} are looked for under these names")


def _checked(
    stored: dict[str, StoredTensor], name: str, shape: tuple[int, ...], types: tuple[str, ...]
) -> StoredTensor:
    if name not in stored:
        folder = next(iter(stored.values())).file.parent
        raise InputError(f"{folder}: tensor {name!r} is in none of its files; is the checkpoint complete?")
    tensor = stored[name]
    if tensor.shape != shape:
        raise InputError(f"{tensor.file}: {name!r} has shape {tensor.shape}, but config.json makes it {shape}")
    if tensor.dtype not in types:
        raise InputError(f"{tensor.file}: {name!r} is {tensor.dtype}; it is loaded from {', '.join(types)}")
    return tensor
