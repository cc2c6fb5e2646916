"""One scheduling decision at 500 queued tasks: the core's, beside the same algorithm over Python's heapq.

The floor is one pass over the queue. The budget is one expert transfer: about 190 us for an expert of Qwen3-30B-A3B-FP8
over PCIe 4.0.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from seqmoe.core.schedule import select

TASKS, LAYERS, BUDGET = 500, 48, 0.9


@pytest.fixture(scope="module")
def queue():
    rng = np.random.default_rng(0)
    deadline = rng.integers(2, LAYERS, TASKS).astype(np.int64)
    return deadline, rng.random(TASKS, dtype=np.float32)


def _core(deadline, confidence):
    return select(deadline, confidence, 0, BUDGET, BUDGET)


def _heapq(deadline, confidence):
    kept: list[tuple[float, int, int]] = []
    for index in np.argsort(deadline, kind="stable").tolist():
        due = int(deadline[index])
        heapq.heappush(kept, (float(confidence[index]), -due, -index))
        if len(kept) > math.floor(max(1.0, BUDGET) + BUDGET * (due - 1)):
            heapq.heappop(kept)
    return -min(kept, key=lambda task: (-task[1], -task[0], -task[2]))[2]


def _floor(deadline, confidence):
    """One pass over the queue, with nothing decided."""
    return int(deadline.min()), float(confidence.max())


@pytest.mark.benchmark(group="one decision at 500 tasks")
@pytest.mark.parametrize(
    "way",
    [_core, *(pytest.param(way, marks=pytest.mark.peer) for way in (_heapq, _floor))],
    ids=lambda way: way.__name__[1:],
)
def test_decision(benchmark, queue, way):
    chosen = benchmark(way, *queue)
    assert way is _floor or chosen == _heapq(*queue)
