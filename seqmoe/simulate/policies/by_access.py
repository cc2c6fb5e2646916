"""LRU, LFU and Belady by what is accessed alone: only an accessed expert's score changes, so no other is computed.

A request is read in blocks (`seqmoe.simulate.blocks`), and of what came before, or comes after, one number for each
expert is kept: memory does not grow with its length. These are for policies that do not prefetch: nothing that is
resident has not been accessed.

Values are int64. The pool holds float32 scores, exact only to 2^24, so every block's values are told as places in
their order, which starts anew with each block: see `places`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.policies.base import Floats

Longs = NDArray[np.int64]
# Of every block, the keys of the accessed experts and when each was accessed: both [m], equal times within an event.
Accesses = tuple[Longs, Longs]
Read = Callable[[int], Accesses]
_NEVER = np.iinfo(np.int64).max // 2
# Times stay below it, so that a count and a time are one number.
_TIME_BITS = 36


class AccessScore(Protocol):
    """Values of one policy, block after block in their order."""

    def values(self, index: int, accesses: Accesses) -> tuple[Longs, Longs]:
        """Of every key as block ``index`` begins [keys], and of every access from then on [m]."""


class Recency:
    """The time of the last access."""

    def __init__(self, keys: int, blocks: int, read: Read) -> None:
        self._last = np.zeros(keys, dtype=np.int64)

    def values(self, index: int, accesses: Accesses) -> tuple[Longs, Longs]:
        """See `AccessScore`."""
        key, time = accesses
        before = self._last.copy()
        self._last[key] = time  # of several accesses the last one stays, as they ascend
        return before, time


class Frequency:
    """The number of accesses, then the time of the last."""

    def __init__(self, keys: int, blocks: int, read: Read) -> None:
        self._count, self._last = np.zeros(keys, dtype=np.int64), np.zeros(keys, dtype=np.int64)

    def values(self, index: int, accesses: Accesses) -> tuple[Longs, Longs]:
        """See `AccessScore`."""
        key, time = accesses
        before = (self._count << _TIME_BITS) + self._last
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        many = np.diff(first, append=len(key))
        count = np.empty_like(key)
        count[order] = self._count[key[order]] + np.arange(len(key)) - np.repeat(first, many) + 1
        self._count[key[order][first]] += many
        self._last[key] = time
        return before, (count << _TIME_BITS) + time


class NextUse:
    """The nearness of the next access; none is the worst. Reads the blocks backwards, once, before they are run."""

    def __init__(self, keys: int, blocks: int, read: Read) -> None:
        self._upcoming = np.full((blocks + 1, keys), _NEVER, dtype=np.int64)
        for index in range(blocks - 1, -1, -1):
            key, time = read(index)
            self._upcoming[index] = self._upcoming[index + 1]
            self._upcoming[index, key[::-1]] = time[::-1]

    def values(self, index: int, accesses: Accesses) -> tuple[Longs, Longs]:
        """See `AccessScore`."""
        key, time = accesses
        order = np.argsort(key, kind="stable")
        following = self._upcoming[index + 1][key]
        same = np.diff(key[order]) == 0
        following[order[:-1][same]] = time[order[1:][same]]
        return -self._upcoming[index], -following


def places(before: Longs, accessed: Longs) -> tuple[Floats, Floats]:
    """The values as their places in the order of both together; equal values have one place."""
    _, place = np.unique(np.concatenate([before, accessed]), return_inverse=True)
    scores = place.astype(np.float32)
    return scores[: len(before)], scores[len(before) :]


# Made for a number of keys and of blocks, and a function that reads a block's accesses.
BY_ACCESS: dict[str, Callable[[int, int, Read], AccessScore]] = {
    "lru": Recency,
    "lfu": Frequency,
    "belady": NextUse,
}
