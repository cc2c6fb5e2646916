"""LRU, LFU and Belady by what is accessed alone: only an accessed expert's score changes, so no other is computed.

Memory is then that of the accesses, a few numbers each, whatever the length of a request. Each function takes ``key``
int64 [m], the accessed experts' keys, and ``time`` int64 [m], ascending, when each was accessed: equal within an event,
which happens at once. It returns the scores that the accessed experts have from then on, float32 [m]. Nothing that is
resident has not been accessed, so these are for policies that do not prefetch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.policies.base import Floats

Longs = NDArray[np.int64]
AccessScore = Callable[[Longs, Longs], Floats]


def lru(key: Longs, time: Longs) -> Floats:
    """The time of the access itself."""
    return time.astype(np.float32)


def lfu(key: Longs, time: Longs) -> Floats:
    """The number of accesses so far, then the time; told as the place of the pair in their order."""
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    group = np.repeat(np.arange(len(first)), np.diff(first, append=len(key)))
    count = np.empty_like(key)
    count[order] = np.arange(len(key)) - first[group]
    _, place = np.unique(count * (int(time.max(initial=0)) + 1) + time, return_inverse=True)
    places: Floats = place.astype(np.float32)
    return places


def belady(key: Longs, time: Longs) -> Floats:
    """The next access, the sooner the better; none is the worst."""
    order = np.argsort(key, kind="stable")
    following = np.full(len(key), 2 * (int(time.max(initial=0)) + 1), dtype=np.int64)
    same = np.diff(key[order]) == 0
    following[order[:-1][same]] = time[order[1:][same]]
    nearness: Floats = (-following).astype(np.float32)
    return nearness


BY_ACCESS: dict[str, AccessScore] = {"lru": lru, "lfu": lfu, "belady": belady}
