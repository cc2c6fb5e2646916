"""A batch in blocks of steps, so that a request of any length is replayed in the memory of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqmoe.simulate.batch import Batch, Events

# Entries [steps, layers, experts] of a block: with their accesses and scores some 50 MiB.
_MOST_ENTRIES = 2**21


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Events of consecutive steps that are all counted, or all not."""

    events: Events
    counted: bool

    @property
    def steps(self) -> slice:
        """From the block's first event to its last: the rows of arrays that have one for each step."""
        return slice(int(self.events.step[0]), int(self.events.step[-1]) + 1) if len(self.events.step) else slice(0, 0)


class Blocks:
    """The blocks of a batch, in order; each is made when it is asked for, and kept if it is the only one of its kind.

    What is kept is for the ordinary request, which a block holds: every policy reads it anew.
    """

    def __init__(self, batch: Batch, most_entries: int = _MOST_ENTRIES) -> None:
        self._batch = batch
        size = max(1, most_entries // (batch.layers * batch.experts))
        changes = np.flatnonzero(np.diff(batch.counted)) + 1
        edges = {0, batch.steps, *changes.tolist(), *range(0, batch.steps, size)}
        self._spans = list(pairwise(sorted(edges)))
        self._kept: dict[int, Block] | None = {} if batch.steps <= size else None

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> Block:
        if self._kept is not None and index in self._kept:
            return self._kept[index]
        first, last = self._spans[index]
        block = Block(self._batch.events(first, last), bool(self._batch.counted[first]))
        if self._kept is not None:
            self._kept[index] = block
        return block

    def __iter__(self) -> Iterator[Block]:
        return (self[index] for index in range(len(self)))

    @property
    def largest(self) -> int:
        """Experts that an event needs at most."""
        return max((int(np.diff(block.events.start).max(initial=0)) for block in self), default=0)
