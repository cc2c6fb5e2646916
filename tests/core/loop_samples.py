"""Random traces and rules for tests of the event loop, and what its state is compared by."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from hypothesis import strategies as st

from seqmoe.core.loop import PLACED, LoopCounts, PrefetchRules
from seqmoe.core.schedule import ORDERS

LAYERS, EXPERTS, MOST, TASKS = 3, 5, 2, 3
LINKS = (0.0, 0.3, 0.9, 1.39, 4.0, math.inf)
RANGES = ((0, 1), (1, 3))
BANDS = (0, 2, 5)
TOTALS = [field.name for field in fields(LoopCounts) if field.name not in ("layers", "bands")]


@dataclass
class Trace:
    """Events, and random scores and tasks with many ties; some events are missing, some need nothing."""

    events: list[tuple[int, int, list[int]]]
    used: np.ndarray
    forecast: np.ndarray
    task_expert: np.ndarray
    task_confidence: np.ndarray

    def block(self, first, last):
        """The arrays of some of the events, for ``feed``."""
        events = self.events[first:last]
        rows = slice(events[0][0], events[-1][0] + 1) if events else slice(0, 0)
        return {
            "step": np.array([step for step, _, _ in events], dtype=np.int64),
            "layer": np.array([layer for _, layer, _ in events], dtype=np.int32),
            "start": np.cumsum([0] + [len(experts) for *_, experts in events]),
            "expert": np.array([expert for *_, experts in events for expert in experts], dtype=np.int32),
            "used": self.used[rows],
            "forecast": self.forecast[rows],
            "ranges": RANGES,
        } | self.tasks(rows)

    def tasks(self, rows):
        return {"task_expert": self.task_expert[rows], "task_confidence": self.task_confidence[rows]}


@st.composite
def traces(draw, most=MOST, most_steps=10):
    seed, steps = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, most_steps))
    missing = draw(st.sampled_from([0.0, 0.0, 0.2]))
    rng = np.random.default_rng(seed)
    events = [
        (step, layer, rng.permutation(EXPERTS)[: rng.integers(0, most + 1)].tolist())
        for step in range(steps)
        for layer in range(LAYERS)
        if rng.random() >= missing
    ]
    used, forecast = rng.integers(0, 4, (2, steps, LAYERS, EXPERTS)).astype(np.float32) / 4
    used[rng.random(used.shape) < 0.05] = np.nan
    task_expert = rng.integers(-1, EXPERTS, (steps, LAYERS, TASKS)).astype(np.int32)
    return Trace(events, used, forecast, task_expert, rng.integers(0, 5, task_expert.shape).astype(np.float32) / 4)


@st.composite
def rules(draw):
    return PrefetchRules(
        draw(st.sampled_from(LINKS)),
        draw(st.sampled_from(ORDERS)),
        draw(st.sampled_from(["creation", "selection"])),
        draw(st.sampled_from([None, None, 0, 1, 8])),
        draw(st.sampled_from([0.1, 1.0])),
    )


def twin_event(twin, trace, index, **options):
    step, layer, experts = trace.events[index]
    tasks = [
        (at, int(trace.task_expert[step, at, place]), float(trace.task_confidence[step, at, place]))
        for at in range(LAYERS)
        for place in range(TASKS)
        if trace.task_expert[step, at, place] >= 0
    ]
    scores = {"used": trace.used[step, layer].tolist(), "forecast": trace.forecast[step].tolist()}
    twin.event(step, layer, experts, **scores, ranges=RANGES, tasks=tasks if twin.rules else None, **options)


def pool_of(loop):
    """What each resident is in; no expert may be in two slots."""
    owner, state = loop.pool()
    residents = [(divmod(key, EXPERTS), kind) for key, kind in zip(owner.tolist(), state.tolist(), strict=True) if kind]
    assert len(dict(residents)) == len(residents)
    assert all((key < 0) == (kind == 0) for key, kind in zip(owner.tolist(), state.tolist(), strict=True))
    return dict(residents)


def places(loop):
    """The counts by layer and by band that are not 0; what came before the first band is in none."""
    counts = loop.counts()
    return {
        (axis, index, name): int(value)
        for axis, rows in (("layer", counts.layers), ("band", counts.bands))
        for index, row in enumerate(rows)
        for name, value in zip(PLACED, row, strict=True)
        if value
    }


def totals(loop):
    counts = loop.counts()
    return {name: getattr(counts, name) for name in TOTALS}
