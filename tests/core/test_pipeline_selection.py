"""Protects reservation at selection: a queued task holds nothing, and with equal timing the replay decides the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_of_bytes import Pool

from seqmoe.core.loop import EventLoop, PrefetchRules
from seqmoe.core.schedule import ORDERS

LAYERS, EXPERTS, MOST, TASKS, STEPS = 3, 5, 2, 3, 8
COUNTS = {
    "hits": "hits", "needed": "needed", "late": "late", "on_demand_transfers": "loads", "prefetch_created": "created",
    "prefetch_sent": "sent", "prefetch_landed": "landed", "prefetch_used": "used", "prefetch_wasted": "wasted",
    "prefetch_dropped": "dropped",
}  # fmt: skip


class Steps:
    """Random routing, scores and tasks with many ties, as arrays of the event loop and event by event."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.needed = [rng.permutation(EXPERTS)[: rng.integers(0, MOST + 1)] for _ in range(STEPS * LAYERS)]
        self.used, self.forecast = rng.integers(0, 4, (2, STEPS, LAYERS, EXPERTS)).astype(np.float32) / 4
        self.task = rng.integers(0, EXPERTS, (STEPS, LAYERS, TASKS)).astype(np.int32)
        self.confidence = rng.integers(0, 5, self.task.shape).astype(np.float32) / 4

    def replay(self, loop, position):
        step, layer = divmod(position, LAYERS)
        loop.feed(
            np.array([step]),
            np.array([layer], dtype=np.int32),
            np.array([0, len(self.needed[position])]),
            self.needed[position].astype(np.int32),
            used=self.used[step : step + 1],
            forecast=self.forecast[step : step + 1],
            ranges=((0, 1), (1, LAYERS)),
            task_expert=self.task[step : step + 1],
            task_confidence=self.confidence[step : step + 1],
        )

    def run(self, pool, position):
        """The same event with the worker stopped until the layer is computed, and done before the next one."""
        step, layer = divmod(position, LAYERS)
        pool.enter(layer, position, self.needed[position])
        pool.table.score[layer] = self.used[step, layer]
        covered = {0: range(1), LAYERS - 1: range(1, LAYERS)}.get(layer, ())
        for at in covered:
            pool.table.score[at] = self.forecast[step, at]
        pool.prefetch(*(
            (at, expert, confidence, (step + 1) * LAYERS + at)
            for at in covered
            for expert, confidence in zip(self.task[step, at], self.confidence[step, at], strict=True)
        ))  # fmt: skip
        pool.pipeline.leave(layer)
        pool.pipeline.paused = False
        pool.pipeline.settle()
        pool.pipeline.paused = True


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(MOST, LAYERS * EXPERTS),
    order=st.sampled_from(ORDERS),
    reserve=st.sampled_from(["creation", "selection"]),
    limit=st.integers(0, 10),
)
def test_with_equal_timing_it_decides_as_the_replay_does(seed, slots, order, reserve, limit):
    steps = Steps(seed)
    loop = EventLoop(LAYERS, EXPERTS, slots, PrefetchRules(math.inf, order, reserve, limit))
    options = {"fetch_limit": limit, "average": LAYERS * EXPERTS, "order": order, "reserve": reserve}
    with Pool(LAYERS, EXPERTS, slots, **options) as pool:
        pool.pipeline.paused = True
        for position in range(STEPS * LAYERS):
            steps.replay(loop, position)
            steps.run(pool, position)
            for mine, replayed in zip(pool.pipeline.pool(), loop.pool(), strict=True):
                assert np.array_equal(mine, replayed)
        counts, replayed = pool.pipeline.statistics(), loop.counts()
        assert {name: counts[name] for name in COUNTS} == {name: getattr(replayed, COUNTS[name]) for name in COUNTS}


def test_a_queued_task_holds_no_slot_and_is_queued_once():
    with Pool(slots=2) as pool:
        pool.pipeline.paused = True
        assert pool.prefetch(*((2, expert, 0.5, 6) for expert in range(8))) == 8
        assert pool.prefetch((2, 3, 0.9, 6)) == 0
        assert (pool.table.owner == -1).all()
        pool.pipeline.paused = False
        pool.pipeline.settle()
        assert pool.count("prefetch_sent") == 2


def test_the_slot_is_chosen_by_the_scores_of_the_moment_of_sending():
    with Pool(slots=3) as pool:
        pool.event(0, 0, [0, 1, 2])
        pool.event(1, 1, [])
        pool.pipeline.paused = True
        pool.table.score[0, :3] = [0.1, 0.2, 0.3]
        pool.prefetch((3, 0, 0.9, 7))
        pool.table.score[0, :3] = [0.3, 0.1, 0.2]
        pool.event(2, 2, [])
        pool.pipeline.paused = False
        pool.pipeline.settle()
        assert (pool.table.slot_of[0, :3] >= 0).tolist() == [True, False, True]


def test_a_score_counts_only_once_it_is_published():
    with Pool(slots=2) as pool:
        pool.event(0, 0, [0, 1])
        pool.event(1, 1, [])
        pool.pipeline.paused = True
        pool.table.score[0, :2] = [0.1, 0.2]
        pool.prefetch((3, 0, 0.9, 7))
        pool.table.score[0, :2] = [0.2, 0.1]
        pool.pipeline.paused = False
        pool.pipeline.settle()
        assert (pool.table.slot_of[0, :2] >= 0).tolist() == [False, True]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_fetch_limit_counts_what_has_not_landed(limit):
    with Pool(fetch_limit=limit) as pool:
        pool.prefetch(*((2, expert, 0.5, 6) for expert in range(8)))
        pool.pipeline.settle()
        assert pool.count("prefetch_sent") == limit


def test_a_refused_task_is_sent_when_a_layer_is_left():
    with Pool(slots=2) as pool:
        pool.enter(0, 0, [0, 1])
        pool.prefetch((2, 3, 0.9, 6))
        pool.pipeline.settle()
        assert pool.count("prefetch_sent") == 0, "all slots are under computation"
        pool.pipeline.leave(0)
        pool.event(1, 1, [])
        pool.pipeline.settle()
        assert pool.count("prefetch_sent") == 1


def test_a_new_fetch_limit_holds_for_what_is_queued():
    with Pool(fetch_limit=0) as pool:
        pool.prefetch((2, 3, 0.9, 6), (2, 4, 0.9, 6))
        pool.pipeline.settle()  # a worker that looks late would send one before the event, and another after it
        pool.table.fetch_limit = 1
        pool.event(1, 1, [])
        pool.pipeline.settle()
        assert (pool.table.fetch_limit, pool.count("prefetch_sent")) == (1, 1)
        with pytest.raises(ValueError, match="negative"):
            pool.table.fetch_limit = -1


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("matroid", [3, 1, 2, 0]),  # one transfer per layer: only the most confident is feasible, ties by deadline
        ("confidence", [3, 1, 2, 0]),
        ("edf", [2, 3, 0, 1]),
        ("promoe", [2, 3, 1, 0]),
        ("infinity", [3, 2, 1, 0]),
    ],
)
def test_the_order_decides_and_may_be_changed_while_tasks_are_queued(order, expected):
    tasks = [(1, 0, 0.3, 9), (1, 1, 0.9, 9), (1, 2, 0.5, 5), (1, 3, 0.9, 6)]
    with Pool(layers=8, slots=1, average=0.0, order="edf") as pool:
        pool.pipeline.paused = True
        pool.prefetch(*tasks)
        assert pool.pipeline.order == "edf"
        pool.pipeline.order = order
        pool.pipeline.paused = False
        seen = []
        for _ in tasks:
            # With one slot, the next task is sent only when this one has landed and is given up.
            pool.pipeline.settle()
            seen += pool.pipeline.pool()[0].tolist()
            pool.enter(0, 0, [0])
            pool.pipeline.leave(0)
            pool.event(7, 0, [])
        assert [key - pool.experts for key in seen] == expected


def test_unknown_orders_and_reservations_are_refused_with_the_known_ones():
    for wrong in ({"order": "fifo"}, {"reserve": "never"}):
        with pytest.raises(ValueError, match=r"must be one of .*(promoe|selection)"):
            Pool(**wrong)
    with Pool() as pool, pytest.raises(ValueError, match=", ".join(ORDERS)):
        pool.pipeline.order = "fifo"
    for reserve in ("creation", "selection"):
        with Pool(reserve=reserve) as pool:
            assert pool.pipeline.reserve == reserve
