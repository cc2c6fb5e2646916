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
    order for one request, ascending and without duplicates for several. ``demand`` int32 [m] is how many requests need
    the expert, None where it is always one.
    """

    step: NDArray[np.int64]
    layer: NDArray[np.int32]
    start: NDArray[np.int64]
    expert: NDArray[np.int32]
    demand: NDArray[np.int32] | None = None

    def accesses(self, layers: int, experts: int, sequential: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Key of every accessed expert, and when, counted from 1: by event, or each by itself; int64 [m], ascending."""
        sizes = np.diff(self.start)
        key = np.repeat(self.layer, sizes).astype(np.int64) * experts + self.expert
        when = np.repeat(self.step * layers + self.layer + 1, sizes)
        if sequential:
            when = when * experts + np.arange(len(key)) - np.repeat(self.start[:-1], sizes)
        return key, when


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One or more requests and when each begins.

    Decoding begins together, prefills end together before it; with a stagger, request i decodes from ``stagger`` * i
    steps after the first. ``offset`` is the step of the batch at which a request's first step runs. ``outputs`` int64
    [steps] are the tokens of requests that decode after their warm-up, and ``decoded`` int64 [steps] the place of a
    step in the decoding that began first (negative before it).
    """

    requests: tuple[RequestTrace, ...]
    offset: tuple[int, ...]
    outputs: NDArray[np.int64]
    decoded: NDArray[np.int64]
    experts: int

    @property
    def counted(self) -> NDArray[np.bool_]:
        """The steps in which some request decodes after its warm-up, bool [steps]."""
        return self.outputs > 0

    @property
    def tokens(self) -> int:
        """Output tokens that count."""
        return int(self.outputs.sum())

    @property
    def steps(self) -> int:
        """Steps from the first request's first to the last one's last."""
        return len(self.outputs)

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
        return self._demand(0, self.steps) > 0

    def events(self, first: int = 0, last: int | None = None) -> Events:
        """The batch's steps from ``first`` to ``last`` (exclusive; default: all) as events."""
        last = self.steps if last is None else last
        if len(self.requests) == 1:
            return events_of(self.requests[0], first, last)
        return _of_demand(self._demand(first, last), first)

    def _demand(self, begin: int, end: int) -> NDArray[np.uint16]:
        """How many requests need each expert, in the steps from ``begin`` to ``end``: [steps, layers, experts]."""
        demand = np.zeros((end - begin, self.layers, self.experts), dtype=np.uint16)
        for request, offset in zip(self.requests, self.offset, strict=True):
            shift = max(begin - offset, 0)
            chosen = request.experts[shift : max(end - offset, 0)]
            step, layer = np.nonzero((chosen != MISSING).all(-1))
            place = step[:, None] + (shift + offset - begin), layer[:, None], chosen[step, layer].astype(np.int64)
            demand[place] += 1
        return demand


def events_of(request: RequestTrace, first: int = 0, last: int | None = None) -> Events:
    """One request, or some steps of it, as events."""
    part = request.experts[first:last]
    step, layer = np.nonzero((part != MISSING).all(-1))
    chosen = part[step, layer].astype(np.int32)
    start = np.arange(len(step) + 1, dtype=np.int64) * part.shape[2]
    return Events(step.astype(np.int64) + first, layer.astype(np.int32), start, chosen.ravel())


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
    outputs = np.zeros(steps, dtype=np.int64)
    for first, request in zip(offset, requests, strict=True):
        decode = request.phase == DECODE
        outputs[first : first + len(decode)] += decode & (np.cumsum(decode) > warm_up)
    return Batch(requests, offset, outputs, np.arange(steps, dtype=np.int64) - begin, experts)


def _first_decode(request: RequestTrace) -> int:
    decode = request.phase == DECODE
    return int(decode.argmax()) if decode.any() else len(decode)


def _of_demand(demand: NDArray[np.uint16], begin: int) -> Events:
    step, layer, expert = np.nonzero(demand)
    event = step * demand.shape[1] + layer
    first = np.flatnonzero(np.diff(event, prepend=-1))
    start = np.append(first, len(event)).astype(np.int64)
    asking = demand[step, layer, expert].astype(np.int32)
    return Events(
        step[first].astype(np.int64) + begin, layer[first].astype(np.int32), start, expert.astype(np.int32), asking
    )
