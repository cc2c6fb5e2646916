"""Requests that run together: their routing as (step, layer) events, and the experts that each event needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import DECODE, MISSING, RequestTrace


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Events in token order, layers ascending; entries that the source lacks are no events.

    ``step`` int64 [n], ``layer`` int32 [n], ``start`` int64 [n + 1] into ``expert`` int32 [m]; ``expert`` is in router
    order for one request, ascending and without duplicates for several.
    """

    step: NDArray[np.int64]
    layer: NDArray[np.int32]
    start: NDArray[np.int64]
    expert: NDArray[np.int32]

    def slice(self, first: int, last: int) -> Events:
        """The events from ``first`` to ``last`` (exclusive)."""
        start = self.start[first : last + 1]
        experts = self.expert[start[0] : start[-1]]
        return Events(self.step[first:last], self.layer[first:last], start - start[0], experts)

    def accesses(self, layers: int, experts: int, sequential: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Key of every accessed expert, and when: the position of its event + 1, or its own place; int64 [m]."""
        sizes = np.diff(self.start)
        key = np.repeat(self.layer, sizes).astype(np.int64) * experts + self.expert
        if sequential:
            return key, np.arange(1, len(key) + 1, dtype=np.int64)
        return key, np.repeat(self.step * layers + self.layer + 1, sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One or more requests and when each begins.

    Decoding begins together, prefills end together before it; with a stagger, request i decodes from ``stagger`` * i
    steps after the first. ``offset`` is the step of the batch at which a request's first step runs. ``counted`` bool
    [steps] are the steps in which some request decodes after its warm-up, ``tokens`` their output tokens, and
    ``decoded`` int64 [steps] the place of a step in the decoding that began first (negative before it).
    """

    requests: tuple[RequestTrace, ...]
    offset: tuple[int, ...]
    counted: NDArray[np.bool_]
    decoded: NDArray[np.int64]
    tokens: int
    experts: int

    @property
    def steps(self) -> int:
        """Steps from the first request's first to the last one's last."""
        return len(self.counted)

    @property
    def layers(self) -> int:
        """MoE layers."""
        return int(self.requests[0].experts.shape[1])

    def alive(self) -> NDArray[np.int64]:
        """How many requests run at each step, int64 [steps]."""
        running = np.zeros(self.steps, dtype=np.int64)
        for request, first in zip(self.requests, self.offset, strict=True):
            running[first : first + len(request.experts)] += 1
        return running

    def active(self) -> NDArray[np.bool_]:
        """The experts that each event needs, the union over the requests, bool [steps, layers, experts]."""
        active = np.zeros((self.steps, self.layers, self.experts), dtype=np.bool_)
        for request, first in zip(self.requests, self.offset, strict=True):
            whole = (request.experts != MISSING).all(-1)
            step, layer = np.nonzero(whole)
            active[step[:, None] + first, layer[:, None], request.experts[step, layer].astype(np.int64)] = True
        return active

    def events(self) -> Events:
        """The batch as events."""
        return events_of(self.requests[0]) if len(self.requests) == 1 else _of_active(self.active())


def events_of(request: RequestTrace) -> Events:
    """One request as events."""
    step, layer = np.nonzero((request.experts != MISSING).all(-1))
    chosen = request.experts[step, layer].astype(np.int32)
    start = np.arange(len(step) + 1, dtype=np.int64) * request.experts.shape[2]
    return Events(step.astype(np.int64), layer.astype(np.int32), start, chosen.ravel())


def batches(
    requests: Iterable[RequestTrace], experts: int, size: int = 1, stagger: int = 0, warm_up: int = 0
) -> Iterator[Batch]:
    """``size`` requests at a time, in their order, read as they are needed; the last batch may be smaller.

    The first ``warm_up`` decode steps of every request are not counted. A request without steps is left out.
    """
    if size < 1 or stagger < 0 or warm_up < 0:
        raise ValueError(f"size = {size}, stagger = {stagger}, warm_up = {warm_up}: too small")
    reading = (request for request in requests if len(request.experts))
    while together := tuple(islice(reading, size)):
        yield _batch(together, experts, stagger, warm_up)


def _batch(requests: tuple[RequestTrace, ...], experts: int, stagger: int, warm_up: int) -> Batch:
    prefills = [_first_decode(request) - stagger * index for index, request in enumerate(requests)]
    begin = max(prefills)
    offset = tuple(begin - prefill for prefill in prefills)
    steps = max(first + len(request.experts) for first, request in zip(offset, requests, strict=True))
    counted = np.zeros(steps, dtype=np.bool_)
    tokens = 0
    for first, request in zip(offset, requests, strict=True):
        decode = request.phase == DECODE
        own = decode & (np.cumsum(decode) > warm_up)
        counted[first : first + len(own)] |= own
        tokens += int(own.sum())
    return Batch(requests, offset, counted, np.arange(steps, dtype=np.int64) - begin, tokens, experts)


def _first_decode(request: RequestTrace) -> int:
    decode = request.phase == DECODE
    return int(decode.argmax()) if decode.any() else len(decode)


def _of_active(active: NDArray[np.bool_]) -> Events:
    step, layer, expert = np.nonzero(active)
    event = step * active.shape[1] + layer
    first = np.flatnonzero(np.diff(event, prepend=-1))
    start = np.append(first, len(event)).astype(np.int64)
    return Events(step[first].astype(np.int64), layer[first].astype(np.int32), start, expert.astype(np.int32))
