"""Conformance: traces small enough to count by hand, with the count beside them.

Every test says what happens event by event; positions are step * layers + layer.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqmoe.core.loop import PLACED
from seqmoe.core.simulate import EventLoop, PrefetchRules, replay


def loop_of(layers, experts, slots, rule=None, sequential=False):
    return EventLoop(layers, experts, slots, rule, sequential)


def feed(loop, events, layers, *, tasks=(), experts=4, **options):
    """``events`` of (step, layer, experts); ``tasks`` of (step, layer, expert, confidence), one range per layer."""
    steps = max(step for step, _, _ in events) + 1
    expert = np.full((steps, layers, 8), -1, dtype=np.int32)
    confidence = np.zeros(expert.shape, dtype=np.float32)
    for place, (step, layer, wanted, chance) in enumerate(tasks):
        expert[step, layer, place], confidence[step, layer, place] = wanted, chance
    if tasks:
        options |= {"task_expert": expert, "task_confidence": confidence}
        options["ranges"] = [(layer, layer + 1) for layer in range(layers)]
    loop.feed(
        np.array([step for step, _, _ in events]),
        np.array([layer for _, layer, _ in events]),
        np.cumsum([0] + [len(needed) for *_, needed in events]),
        np.array([expert for *_, needed in events for expert in needed]),
        **options,
    )
    return loop.counts()


# One layer, two slots, LRU. Router order within an event.
RECENCY = [(0, 0, [0, 1]), (1, 0, [2, 0]), (2, 0, [0, 1])]


def test_lru_event_contract():
    # Step 0 loads 0 and 1. Step 1 needs {0, 2}: 0 is a hit and cannot be evicted, 2 takes the place of 1.
    # Step 2 needs {0, 1}: 0 is a hit, 1 takes the place of 2. So 2 hits of 6, 4 loads, 2 evictions.
    counts = feed(loop_of(1, 3, 2), RECENCY, 1, accessed=np.array([0, 0, 1, 1, 2, 2]))
    assert (counts.hits, counts.needed, counts.loads, counts.evictions) == (2, 6, 4, 2)
    arrays = np.zeros(3, np.int32), np.array([0, 2, 4, 6]), np.array([0, 1, 2, 0, 0, 1], np.int32)
    assert replay(1, 3, 2, *arrays, 0, "lru").hits == 2


def test_lru_sequential_contract():
    # 0 and 1 are loaded. 2 takes the place of 0, the older one; 0 that of 1; 0 is a hit; 1 takes the place of 2.
    # The same trace has 1 hit of 6, 5 loads, 3 evictions, only because its accesses were given an order.
    counts = feed(loop_of(1, 3, 2, sequential=True), RECENCY, 1, accessed=np.arange(6))
    assert (counts.hits, counts.needed, counts.loads, counts.evictions) == (1, 6, 5, 3)
    arrays = np.zeros(3, np.int32), np.array([0, 2, 4, 6]), np.array([0, 1, 2, 0, 0, 1], np.int32)
    assert replay(1, 3, 2, *arrays, 0, "lru", sequential=True).hits == 1


def test_ties_go_to_the_lower_key_and_empty_slots_first():
    # All scores are 0. 3 and 1 fill the two slots; 2 takes the place of 1, 0 that of 2, and 3 stays: the only hit.
    events = [(0, 0, [3]), (1, 0, [1]), (2, 0, [2]), (3, 0, [0]), (4, 0, [3])]
    counts = feed(loop_of(1, 4, 2), events, 1)
    assert (counts.hits, counts.loads, counts.evictions) == (1, 4, 2)


def test_a_prefetch_that_arrives():
    # Two layers, top-1. At position 0 a task for (0, 1) is created, due at 2. The link moves one expert per layer, so
    # it is done after position 0 and lands at 1; at 2 it is a hit. Loads on demand: (0, 0), (1, 0), (1, 0) stays.
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [1]), (1, 1, [0])]
    counts = feed(loop_of(2, 4, 4, PrefetchRules(1.0)), events, 2, tasks=[(0, 0, 1, 0.9)])
    assert (counts.hits, counts.late, counts.loads) == (2, 0, 2)
    assert (counts.created, counts.sent, counts.landed, counts.used, counts.wasted) == (1, 1, 1, 1, 0)
    assert counts.layers[:, PLACED.index("hits")].tolist() == [1, 1]


def test_a_prefetch_that_is_late():
    # As before, but the link moves 0.3 experts per layer: 0.6 of it are there at position 2. It is waited for, which
    # is no hit and no load on demand.
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [1]), (1, 1, [0])]
    counts = feed(loop_of(2, 4, 4, PrefetchRules(0.3)), events, 2, tasks=[(0, 0, 1, 0.9)])
    assert (counts.hits, counts.late, counts.loads, counts.misses) == (1, 1, 2, 3)
    assert (counts.sent, counts.landed, counts.used) == (1, 1, 1)


def test_a_prefetch_that_was_not_sent():
    # Two tasks due at 2, half an expert per layer. (0, 1) is the more confident: sent at 0, done after 1. (0, 2) is
    # still queued when position 2 needs it: dropped, and loaded on demand.
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [1, 2])]
    tasks = [(0, 0, 2, 0.4), (0, 0, 1, 0.9)]
    counts = feed(loop_of(2, 4, 6, PrefetchRules(0.5)), events, 2, tasks=tasks)
    assert (counts.hits, counts.late, counts.loads) == (1, 0, 3)
    assert (counts.created, counts.sent, counts.dropped, counts.used) == (2, 1, 1, 1)


def test_a_prefetch_that_is_wasted():
    # Three slots, one for misses. (0, 1) is prefetched and not needed at 2: in COMPUTE until then, in USED since, with
    # the lowest score (-1). Position 2 loads (0, 3) into the empty slot, position 3 needs (1, 1): (0, 1) goes.
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [0]), (1, 1, [1])]
    used = np.zeros((2, 2, 4))
    used[:, 0, 1] = -1
    counts = feed(loop_of(2, 4, 3, PrefetchRules(1.0)), events, 2, tasks=[(0, 0, 1, 0.9)], used=used)
    assert (counts.hits, counts.loads, counts.evictions) == (1, 3, 1)
    assert (counts.landed, counts.used, counts.wasted) == (1, 0, 1)


def test_a_task_due_by_the_next_layer_is_not_created():
    # One layer: the next step's event is the next position (Algorithm 1, line 4).
    counts = feed(loop_of(1, 4, 4, PrefetchRules(math.inf)), [(0, 0, [0]), (1, 0, [1])], 1, tasks=[(0, 0, 1, 0.9)])
    assert (counts.created, counts.hits, counts.loads) == (0, 0, 2)


def test_what_is_resident_or_under_way_is_not_fetched_again():
    # (0, 0) is resident, (0, 1) is asked for twice: one task.
    tasks = [(0, 0, 0, 0.9), (0, 0, 1, 0.8), (0, 0, 1, 0.7)]
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [0, 1])]
    counts = feed(loop_of(2, 4, 8, PrefetchRules(4.0)), events, 2, tasks=tasks)
    assert (counts.created, counts.sent, counts.used, counts.hits) == (1, 1, 1, 2)


@pytest.mark.parametrize(("reserve", "hits"), [("creation", 0), ("selection", 1)])
def test_reserving_at_creation_costs_residents_at_once(reserve, hits):
    # Two layers, three slots, of which one must be left for misses; 0.25 experts per layer. At position 1 the pool
    # holds (0, 0) and (1, 0), and tasks for (1, 1) and (1, 2) are created, due at 3. Reserved at creation they take
    # the empty slot and that of (0, 0), which position 2 needs: a miss, which takes the place of (1, 0). Reserved at
    # selection only the one that is sent has a slot, the empty one, and (0, 0) is a hit.
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [0])]
    tasks = [(0, 1, 1, 0.9), (0, 1, 2, 0.8)]
    counts = feed(loop_of(2, 4, 3, PrefetchRules(0.25, reserve=reserve)), events, 2, tasks=tasks)
    assert (counts.hits, counts.loads, counts.created) == (hits, 3 - hits, 2)
    assert (counts.sent, counts.dropped, counts.evictions) == (1, 0, 2 - 2 * hits)


def test_a_miss_takes_the_newest_queued_slot_where_no_other_is_free():
    # Two layers, two slots, of which none is left for misses (a limit of 2). At position 1 the pool is full; layer 0's
    # expert is gone for the task of (1, 1), while (1, 0), which position 1 needs, cannot be taken. The link moves 0.5,
    # so (1, 1) is in flight at position 2, which needs (0, 1): (1, 0) goes. Position 3 needs (1, 2), and finds (0, 1)
    # in USED: it goes, and (1, 1), which has landed in time for position 3 and was not needed, stays.
    rule = PrefetchRules(0.5, fetch_limit=2)
    events = [(0, 0, [0]), (0, 1, [0]), (1, 0, [1]), (1, 1, [2])]
    counts = feed(loop_of(2, 4, 2, rule), events, 2, tasks=[(0, 1, 1, 0.9)])
    assert (counts.hits, counts.loads, counts.dropped, counts.evictions) == (0, 4, 0, 3)
    # Two experts needed at position 2, and a link of 0: the slots of (1, 0) and the queued (1, 1) are taken: dropped.
    events[2:] = [(1, 0, [1, 2])]
    counts = feed(loop_of(2, 4, 2, PrefetchRules(0.0, fetch_limit=2)), events, 2, tasks=[(0, 1, 1, 0.9)])
    assert (counts.loads, counts.sent, counts.dropped) == (4, 0, 1)
    # Had it been sent, it would have to land first, and is given up then: wasted.
    counts = feed(loop_of(2, 4, 2, PrefetchRules(0.01, fetch_limit=2)), events, 2, tasks=[(0, 1, 1, 0.9)])
    assert (counts.loads, counts.sent, counts.landed, counts.wasted) == (4, 1, 1, 1)


def test_a_forecast_takes_effect_at_its_trigger():
    # One layer, two slots. Without forecasts expert 0 goes before 1 (ties by key); the forecast of step 1 says that 0
    # comes back and 1 does not, so 2 takes the place of 1, and 0 is a hit in step 3.
    events = [(0, 0, [0]), (1, 0, [1]), (2, 0, [2]), (3, 0, [0])]
    forecast = np.zeros((4, 1, 4))
    forecast[1, 0, 0] = 1
    assert feed(loop_of(1, 4, 2), events, 1).hits == 0
    assert feed(loop_of(1, 4, 2), events, 1, forecast=forecast, ranges=[(0, 1)]).hits == 1


def test_unlimited_prefetching_of_the_true_experts_leaves_only_the_first_step():
    # Three layers, top-1, one predictor: all of step t + 1 is prefetched at the end of step t, save layer 0's, which
    # is due by the next layer. Every step needs another expert, so that without prefetching nothing would be a hit.
    steps = 4
    events = [(step, layer, [step]) for step in range(steps) for layer in range(3)]
    wanted = np.array([[[step + 1 if step + 1 < steps else -1]] * 3 for step in range(steps)])
    counts = feed(
        loop_of(3, 4, 6, PrefetchRules(math.inf)),
        events,
        3,
        task_expert=wanted,
        task_confidence=np.full(wanted.shape, 0.9),
        ranges=[(0, 3)],
        used=np.broadcast_to(np.arange(steps)[:, None, None], (steps, 3, 4)),
    )
    # Step 0: 3 misses. Steps 1 to 3: a miss in layer 0, hits in layers 1 and 2.
    assert (counts.hits, counts.loads) == (6, 6)
    assert (counts.sent, counts.landed, counts.used) == (6, 6, 6)
