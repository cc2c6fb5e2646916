"""Parts of a trace set: by sequence, never by token, and never a copy."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import RequestTrace, TraceSet
from seqmoe.traces.summary import Summary, column, summaries


class Part(Sequence[RequestTrace]):
    """Some requests of a sequence, by index; each is read when it is asked for."""

    def __init__(self, whole: Sequence[RequestTrace], indices: NDArray[np.int64]) -> None:
        part = whole if isinstance(whole, Part) else None  # a part of a part is a part of the whole
        self.whole: Sequence[RequestTrace] = part.whole if part else whole
        self.indices: NDArray[np.int64] = part.indices[indices] if part else indices

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> RequestTrace: ...
    @overload
    def __getitem__(self, index: slice) -> Part: ...
    def __getitem__(self, index: int | slice) -> RequestTrace | Part:
        if isinstance(index, slice):
            return Part(self.whole, self.indices[index])
        return self.whole[int(self.indices[index])]

    def column(self, name: str) -> list[Any]:
        """See `seqmoe.traces.summary.Columns`."""
        if isinstance(self.whole, tuple):
            return column(tuple(self), name)
        values = column(self.whole, name)
        return [values[index] for index in self.indices]


def subset(traces: TraceSet, indices: Iterable[int]) -> TraceSet:
    """The requests at ``indices``, in that order, read lazily. An index outside the set is an ``IndexError``."""
    chosen = np.fromiter(indices, dtype=np.int64)
    count = len(traces.requests)
    if len(chosen) and not -count <= chosen.min() <= chosen.max() < count:
        raise IndexError(f"request indices {chosen.min()} to {chosen.max()}, but there are {count} requests")
    return replace(traces, requests=Part(traces.requests, chosen % max(count, 1)))


def where(traces: TraceSet, keep: Callable[[Summary], bool]) -> TraceSet:
    """The requests whose `Summary` is kept; of a store no routing is read for it."""
    return subset(traces, [index for index, summary in enumerate(summaries(traces.requests)) if keep(summary)])


def split(traces: TraceSet, test_share: float = 0.1, seed: int = 0) -> tuple[TraceSet, TraceSet]:
    """Training and test requests, both lazy, each in the set's order.

    Which part a request falls into depends on the hash of ``seed`` and its identifier (its index where it has none), so
    it is the same wherever the set is kept, and hardly changes when requests are added. The test part has
    ``round(test_share * requests)`` of them, at least one, and leaves at least one. Raises `InputError` for a share
    outside (0, 1) and for fewer than two requests.
    """
    count = len(traces.requests)
    if not 0 < test_share < 1:
        raise InputError(f"test share {test_share}: expected a number between 0 and 1, for example 0.1")
    if count < 2:
        raise InputError(f"{traces.model}: {count} request cannot be split into training and test")
    size = min(max(round(test_share * count), 1), count - 1)
    ranked = sorted(range(count), key=[_rank(seed, name) for name in _distinct(traces.requests)].__getitem__)
    return subset(traces, sorted(ranked[size:])), subset(traces, sorted(ranked[:size]))


def _distinct(requests: Sequence[RequestTrace]) -> list[str]:
    """Identifiers; an empty one is the request's index, one that occurred before has its occurrence added."""
    seen: Counter[str] = Counter()
    names = []
    for index, identifier in enumerate(column(requests, "identifier")):
        name = identifier or f"#{index}"
        names.append(f"{name}\0{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()
