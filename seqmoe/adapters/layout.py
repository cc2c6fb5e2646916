"""How checkpoints and Transformers' modules lay out expert weights, and the way from there to the canonical layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqmoe.adapters.mxfp4 import BLOCK, unpack


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor that holds weights of one expert, or of all experts of a layer along its first dimension.

    ``name`` is below the layer's MoE block, with ``{expert}`` where every expert has a tensor of its own. The piece
    belongs into ``part`` of an expert (a name of `seqmoe.adapters.base.ExpertFormat.parts`): its first half for
    ``half`` 0, its second for 1, all of it for None. A ``transposed`` piece has input features first; an
    ``interleaved`` one has rows gate 0, up 0, gate 1, up 1, ...; a ``packed`` one is two tensors of MXFP4.
    """

    name: str
    part: str
    half: int | None = None
    transposed: bool = False
    interleaved: bool = False
    packed: bool = False

    @property
    def fused(self) -> bool:
        """Whether one tensor holds the piece of every expert of a layer."""
        return "{expert}" not in self.name

    @property
    def canonical(self) -> bool:
        """Whether the stored bytes are those of a pool, so that they can be copied as they are."""
        return not (self.transposed or self.interleaved or self.packed)

    def rows(self, shape: tuple[int, ...]) -> slice:
        """The rows of the part (of the given shape) that the piece fills."""
        if self.half is None:
            return slice(0, shape[0])
        return slice(self.half * shape[0] // 2, (self.half + 1) * shape[0] // 2)

    def tensors(self, shape: tuple[int, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Name and shape of what is stored of one expert's piece, for a part of the given shape."""
        rows = self.rows(shape)
        canonical = (rows.stop - rows.start, *shape[1:])
        if self.packed:
            blocks = (canonical[0], canonical[1] // BLOCK)
            return (f"{self.name}_blocks", (*blocks, BLOCK // 2)), (f"{self.name}_scales", blocks)
        return ((self.name, canonical[::-1] if self.transposed else canonical),)

    def place(self, stored: Sequence[torch.Tensor], part: torch.Tensor) -> None:
        """Write one expert's piece, as stored, into its part in canonical layout; converts the type on the way."""
        values = unpack(*stored) if self.packed else stored[0]
        rows = values.T if self.transposed else values
        target = part[self.rows(tuple(part.shape))]
        if self.interleaved:
            half = len(target) // 2
            target[:half].copy_(rows[0::2])
            target[half:].copy_(rows[1::2])
        else:
            target.copy_(rows)


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """The pieces that make up an expert, in the order they lie in the pools."""

    name: str
    pieces: tuple[Piece, ...]

    @property
    def canonical(self) -> bool:
        """Whether experts can be read from a checkpoint straight into slots."""
        return all(piece.canonical for piece in self.pieces)


SEPARATE = StoredLayout(
    "one tensor per expert and matrix",
    (
        Piece("experts.{expert}.gate_proj.weight", "gate_up", half=0),
        Piece("experts.{expert}.up_proj.weight", "gate_up", half=1),
        Piece("experts.{expert}.down_proj.weight", "down"),
    ),
)
SEPARATE_BY_NUMBER = StoredLayout(
    "one tensor per expert and matrix",
    (
        Piece("experts.{expert}.w1.weight", "gate_up", half=0),
        Piece("experts.{expert}.w3.weight", "gate_up", half=1),
        Piece("experts.{expert}.w2.weight", "down"),
    ),
)
FUSED = StoredLayout(
    "one tensor per layer and matrix",
    (Piece("experts.gate_up_proj", "gate_up"), Piece("experts.down_proj", "down")),
)
GPT_OSS = StoredLayout(
    "one tensor per layer and matrix, transposed, gate and up interleaved",
    (
        Piece("experts.gate_up_proj", "gate_up", transposed=True, interleaved=True),
        Piece("experts.down_proj", "down", transposed=True),
        Piece("experts.gate_up_proj_bias", "gate_up_bias", interleaved=True),
        Piece("experts.down_proj_bias", "down_bias"),
    ),
)
GPT_OSS_MXFP4 = StoredLayout(
    "MXFP4, gate and up interleaved",
    (
        Piece("experts.gate_up_proj", "gate_up", interleaved=True, packed=True),
        Piece("experts.down_proj", "down", packed=True),
        Piece("experts.gate_up_proj_bias", "gate_up_bias", interleaved=True),
        Piece("experts.down_proj_bias", "down_bias"),
    ),
)
