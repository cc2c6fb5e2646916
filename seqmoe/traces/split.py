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

    Requests of one group (samples of one prompt, turns of one conversation) stay together; a request without a group is
    one of its own. Which part a group falls into depends on the hash of ``seed`` and its name (without a group the
    identifier, or else the index), so it is the same wherever the set is kept, and hardly changes when requests are
    added. Whole groups are taken for the test part until it has ``round(test_share * requests)`` requests; each part
    has at least one. Raises `InputError` for a share outside (0, 1), and where there is only one group.
    """
    if not 0 < test_share < 1:
        raise InputError(f"test share {test_share}: expected a number between 0 and 1, for example 0.1")
    count = len(traces.requests)
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(_groups(traces.requests)):
        groups.setdefault(name, []).append(index)
    if len(groups) < 2:
        raise InputError(
            f"{traces.model}: {count} {'request' if count == 1 else 'requests of one prompt'} cannot be split into "
            "training and test"
        )
    test: list[int] = []
    for name in sorted(groups, key=lambda name: _rank(seed, name)):
        left = round(test_share * count) - len(test)
        if test and (left <= 0 or len(test) + len(groups[name]) >= count):
            break
        test += groups[name]
    chosen = set(test)
    return subset(traces, [index for index in range(count) if index not in chosen]), subset(traces, sorted(test))


def _groups(requests: Sequence[RequestTrace]) -> list[str]:
    """Every request's group; one that has none is a group of its own."""
    own = _distinct(requests)
    return [f"\0{group}" if group else name for group, name in zip(column(requests, "group"), own, strict=True)]


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
