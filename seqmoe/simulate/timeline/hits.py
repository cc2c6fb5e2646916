"""Counts of one policy on one workload, from the replay's own event loop, per decode step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqmoe.core.simulate import EventLoop, PrefetchRules
from seqmoe.simulate.foresight import Tasks, likely
from seqmoe.simulate.policies import Policy, Routing, Scores, policy_of
from seqmoe.simulate.timeline.workload import Workload


def _request_frequency(routing: Routing) -> Scores:
    """How often the running requests used each expert so far."""
    return Scores(used=np.cumsum(routing.active, axis=0, dtype=np.float32))


# MoE-Infinity's cache: the experts that the request's activations so far name. Prefetches go in its own order.
ACTIVATION = Policy("activation", "Request-level activation", _request_frequency, prefetch="infinity")


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Experts per decode step, all layers together, mean over the counted steps; ``needed`` are distinct per event."""

    needed: float
    hits: float
    loads: float
    late: float
    sent: float
    wasted: float

    @property
    def hit_rate(self) -> float:
        """Share of needed experts that were resident when their event began."""
        return self.hits / self.needed

    @property
    def misses(self) -> float:
        """Needed experts that were not resident."""
        return self.loads + self.late


def step_counts(work: Workload, policy: str, residency: float, link: float, history: bool = False) -> StepCounts:
    """Run a policy of `seqmoe.simulate.policies` from a cold pool, the steps before the counted ones as warm-up.

    ``link`` is in experts per layer. ``history`` takes running frequencies in the place of the forecasts.
    """
    chosen = ACTIVATION if policy == ACTIVATION.name else policy_of(policy)
    slots = work.geometry.slots(residency)
    foresight = work.history if history else work.foresight
    if chosen.forecasts and foresight is None:
        raise ValueError(f"policy {policy!r} needs forecasts")
    shown = foresight if chosen.forecasts else None
    routing = Routing(work.active, work.counted, work.geometry.top_k, residency, slots, shown)
    scores = chosen.score(routing).checked(chosen, routing)
    rules = tasks = None
    if chosen.prefetch is not None and foresight is not None and link > 0:
        rules = PrefetchRules(link=link, order=chosen.prefetch, reserve=chosen.reserve)
        tasks = _tasks(work, chosen, history)
    loop = EventLoop(work.geometry.layers, work.geometry.experts, slots, rules)
    told = scores.forecast is not None or tasks is not None
    first = int(np.argmax(work.counted))
    for begin, end, count in ((0, first, False), (first, len(work.active), True)):
        if begin == end:
            continue
        step, layer, expert = np.nonzero(work.active[begin:end])
        event = step * work.geometry.layers + layer
        opening = np.flatnonzero(np.diff(event, prepend=-1))
        loop.feed(
            step[opening] + begin,
            layer[opening].astype(np.int32),
            np.append(opening, len(event)),
            expert.astype(np.int32),
            count=count,
            used=None if scores.used is None else scores.used[begin:end],
            forecast=None if scores.forecast is None else scores.forecast[begin:end],
            ranges=foresight.ranges if foresight is not None and told else (),
            task_expert=None if tasks is None else tasks[0][begin:end],
            task_confidence=None if tasks is None else tasks[1][begin:end],
        )
    found, steps = loop.counts(), int(work.counted.sum())
    counts = (found.needed, found.hits, found.loads, found.late, found.sent, found.wasted)
    return StepCounts(*(count / steps for count in counts))


def static_counts(work: Workload, residency: float) -> StepCounts:
    """Whole layers on the device: all of their experts are hits, no other is."""
    counted = work.active[work.counted]
    needed = float(counted.sum() / len(counted))
    kept = round(residency * work.geometry.layers) / work.geometry.layers
    return StepCounts(needed, kept * needed, (1 - kept) * needed, 0.0, 0.0, 0.0)


def without_pool(work: Workload, resident: bool) -> StepCounts:
    """Every needed expert a hit, or every one a load."""
    counts = static_counts(work, 1.0)
    return counts if resident else replace(counts, hits=0.0, loads=counts.needed)


def _tasks(work: Workload, policy: Policy, history: bool) -> Tasks:
    tasks = work.tasks_by(work.history) if history else work.tasks
    assert tasks is not None
    return likely(tasks, policy.least_confidence)
