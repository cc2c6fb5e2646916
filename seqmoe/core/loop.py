"""The event loop: routing through the slot table under a unit clock, over scores and tasks that its caller computes.

It is the runtime's pipeline (paper, sections 6 and 8.2; see `seqmoe.core.pipeline`) in virtual time, and shares its
slot table, schedule and budget: the computation of an event's layer takes 1, and meanwhile the link moves ``link``
experts of prefetches. What is evicted is decided by the scores, what is prefetched by the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seqmoe.core import _native
from seqmoe.core.loop_counts import PLACED, LoopCounts
from seqmoe.core.schedule import ORDERS, Order

__all__ = ["PLACED", "EventLoop", "LoopCounts", "PrefetchRules"]

Floats = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class PrefetchRules:
    """How the queued tasks are sent.

    ``link`` is in experts per layer, ``math.inf`` for any number. ``order`` is one of `seqmoe.core.schedule.ORDERS`.
    ``reserve`` says when a task gets its slot: at its ``creation`` as in the paper, or at its ``selection`` for the
    link. At most ``fetch_limit`` slots are in FETCH; by default all but as many as the largest event so far needed.
    ``alpha`` is the weight of the budget's moving average.
    """

    link: float
    order: Order = "matroid"
    reserve: Literal["creation", "selection"] = "creation"
    fetch_limit: int | None = None
    alpha: float = 0.1

    def __post_init__(self) -> None:
        if not self.link >= 0:
            raise ValueError(f"link = {self.link}: must be 0 or more experts per layer")
        if self.order not in ORDERS:
            raise ValueError(f"order {self.order!r}: must be one of {', '.join(ORDERS)}")
        if self.reserve not in ("creation", "selection"):
            raise ValueError(f"reserve {self.reserve!r}: must be creation or selection")
        if self.fetch_limit is not None and self.fetch_limit < 0:
            raise ValueError(f"fetch_limit = {self.fetch_limit}: must not be negative")
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha = {self.alpha}: must lie in (0, 1]")


class EventLoop:
    """One pool of ``slots`` slots that all layers share, cold at first, and what happens in it.

    An event (step, layer) is, in the paper's order: finished prefetches land, and queued ones that are overdue are
    dropped; misses are loaded, while the clock stands still, and a needed expert in flight is waited for; scores
    change; tasks are created; the layer computes while the link moves prefetches. Of all slots that may be taken, empty
    ones go first, then the lowest score, ties by the lower (layer, expert); a NaN is the lowest. With ``sequential``
    every access is an event of its own in the order given, though the layer still computes once. ``bands`` are first
    steps, ascending, of the bands that are counted apart.
    """

    def __init__(
        self,
        layers: int,
        experts: int,
        slots: int,
        prefetch: PrefetchRules | None = None,
        sequential: bool = False,
        bands: Sequence[int] = (),
    ) -> None:
        if min(layers, experts, slots) < 1:
            raise ValueError("layers, experts and slots must be at least 1")
        if list(bands) != sorted(set(bands)):
            raise ValueError(f"bands {list(bands)}: must ascend")
        self._layers, self._experts, self._slots = layers, experts, slots
        self._prefetch, self._sequential = prefetch, sequential
        rules = prefetch or PrefetchRules(0.0)
        self._loop = _native.EventLoop(
            layers,
            experts,
            slots,
            prefetch is not None,
            rules.link,
            ORDERS.index(rules.order),
            rules.reserve == "creation",
            rules.fetch_limit,
            rules.alpha,
            sequential,
            list(bands),
        )

    def feed(
        self,
        step: NDArray[np.int64],
        layer: NDArray[np.int32],
        start: NDArray[np.int64],
        expert: NDArray[np.int32],
        *,
        count: bool = True,
        demand: NDArray[np.integer] | None = None,
        accessed: Floats | None = None,
        used: Floats | None = None,
        forecast: Floats | None = None,
        ranges: Sequence[tuple[int, int]] = (),
        task_expert: NDArray[np.int32] | None = None,
        task_confidence: Floats | None = None,
    ) -> None:
        """Run the next events; blocks may follow one another, each with the arrays of its own steps.

        Event i needs the distinct experts ``expert[start[i]:start[i + 1]]`` (int [m]) of layer ``layer[i]`` (int [n])
        in ``step[i]`` (int [n]), counted from 0 within the request; events ascend by (step, layer). ``count`` says
        whether they are counted; ``demand`` int [m] is how many requests need each of them, 1 if not given.

        Scores stay as they are until they are set, 0 at first; they are float32, exact for integers up to 2^24. After
        an event, ``accessed`` [m] gives those of the experts it needed, or else ``used`` [steps, layers, experts] those
        of its layer, where row 0 is ``step[0]`` (sequential: after each access its expert's, after the last the
        layer's). Each of ``ranges`` (first layer, last layer exclusive) is triggered by the event of its last layer:
        the scores of its layers become those of ``forecast`` [steps, layers, experts], and tasks are created for the
        next step, for ``task_expert`` with ``task_confidence``, both [steps, layers, tasks], -1 for none; experts with
        a slot or a queued task get none.

        Raises ``ValueError`` for arrays that do not fit, and then nothing has run.
        """
        step, layer, start = _long(step), _int(layer), _long(start)
        expert = _int(expert)
        self._check_events(step, layer, start, expert)
        if not len(step):
            return
        steps = int(step[-1] - step[0]) + 1
        rows = (steps, self._layers, self._experts)
        if demand is not None and demand.shape != expert.shape:
            raise ValueError(f"demand {list(demand.shape)}: must be {list(expert.shape)}")
        demand = None if demand is None else _int(demand)
        if accessed is not None:
            accessed = _shaped("accessed", accessed, (len(expert),))
        if used is not None:
            used = _shaped("used", used, rows)
        if forecast is not None:
            forecast = _shaped("forecast", forecast, rows)
        if accessed is not None and used is not None:
            raise ValueError("accessed and used: give one of them")
        if any(not 0 <= first < last <= self._layers for first, last in ranges):
            raise ValueError(f"ranges {list(ranges)}: each must be (first, last) within {self._layers} layers")
        if (forecast is not None or task_expert is not None) and not ranges:
            raise ValueError("ranges: forecasts and tasks need the layer ranges that trigger them")
        if (task_expert is None) != (task_confidence is None):
            raise ValueError("task_expert and task_confidence: give both or neither")
        if task_expert is not None and task_confidence is not None:
            task_expert, task_confidence = self._checked_tasks(task_expert, task_confidence, steps)
        self._loop.feed(
            step, layer, start, expert, count, demand, accessed, used, forecast, list(ranges), task_expert,
            task_confidence,
        )  # fmt: skip

    def set_scores(self, scores: Floats) -> None:
        """Give every expert a score, [layers, experts]; scores that outgrow float32 can so be begun anew."""
        self._loop.set_scores(_shaped("scores", scores, (self._layers, self._experts)))

    def counts(self) -> LoopCounts:
        """What was counted so far, over all requests."""
        return LoopCounts.of(self._loop.counts())

    def pool(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The expert key in each slot, -1 for none, and its state (`seqmoe.core.slots`), both [slots]."""
        return self._loop.pool()

    def forget(self) -> None:
        """A new request begins: an empty pool, no scores, no tasks, clock 0."""
        self._loop.forget()

    def _check_events(
        self,
        step: NDArray[np.int64],
        layer: NDArray[np.int32],
        start: NDArray[np.int64],
        expert: NDArray[np.int32],
    ) -> None:
        sizes = np.diff(start)
        if len(sizes) != len(layer) or start[0] != 0 or start[-1] != len(expert) or (sizes < 0).any():
            raise ValueError("start must lead from 0 to the number of accesses, one step per event")
        if len(step) != len(layer):
            raise ValueError(f"{len(step)} steps, but {len(layer)} layers: one of each per event")
        if not (_below(layer, self._layers) and _below(expert, self._experts)):
            raise ValueError("a layer or an expert lies outside the geometry")
        if not len(step):
            return
        position = step * self._layers + layer
        if (np.diff(position, prepend=self._loop.position) <= 0).any():
            raise ValueError("events must ascend by (step, layer), from step 0 and after those already fed")
        limit = 1 if self._sequential else int(sizes.max())
        if limit > self._slots:
            raise ValueError(f"an event needs {limit} experts at once, but there are {self._slots} slots")

    def _checked_tasks(
        self, expert: NDArray[np.int32], confidence: Floats, steps: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        if self._prefetch is None:
            raise ValueError("tasks are prefetched only by a loop that has PrefetchRules")
        expert = _int(expert)
        if expert.ndim != 3 or expert.shape[:2] != (steps, self._layers):
            raise ValueError(f"task_expert {list(expert.shape)}: must be [{steps}, {self._layers}, tasks]")
        confidence = _shaped("task_confidence", confidence, expert.shape)
        if ((expert < -1) | (expert >= self._experts)).any():
            raise ValueError("task_expert: an expert lies outside the geometry; -1 is none")
        if np.isnan(confidence).any():
            raise ValueError("task_confidence: a confidence is not a number")
        return expert, confidence


def _long(values: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.ascontiguousarray(values, dtype=np.int64)


def _int(values: NDArray[np.integer]) -> NDArray[np.int32]:
    return np.ascontiguousarray(values, dtype=np.int32)


def _below(values: NDArray[np.int32], limit: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < limit)


def _shaped(name: str, values: Floats, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if values.shape != shape:
        raise ValueError(f"{name} {list(values.shape)}: must be {list(shape)}")
    return np.ascontiguousarray(values, dtype=np.float32)
