"""Protects the pipeline's account: what is a hit, late or a miss, which task goes first, and what is dropped when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_of_bytes import Pool
from twins.replay import replay
from twins.slots import COMPUTE, EMPTY, FETCH, USED

SLOW = 0.05


def test_a_miss_then_a_hit():
    with Pool() as pool:
        first = pool.event(1, 1, [3, 5])
        assert (pool.event(1, 5, [5, 3]) == first[::-1]).all()
        assert {name: pool.count(name) for name in ("events", "needed", "hits", "late", "misses")} == {
            "events": 2, "needed": 4, "hits": 2, "late": 0, "misses": 2,
        }  # fmt: skip
        assert pool.count("on_demand_transfers") == pool.link.transfers == 2
        assert pool.count("stall_seconds") > 0
        pool.pipeline.reset_statistics()
        assert not any(pool.pipeline.statistics().values())


events = st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(0, 5), max_size=4)), max_size=40)


@settings(deadline=None)
@given(events, st.integers(4, 10))
def test_least_recently_used_equals_the_replay(events, slots):
    with Pool(layers=3, experts=6, slots=slots) as pool:
        for position, (layer, experts) in enumerate(events):
            pool.table.score[layer, sorted(experts)] = position
            pool.event(layer, position, sorted(experts))
        hits, needed, _, loads = replay([{6 * la + e for e in ex} for la, ex in events], slots, 0, "lru")
        counts = pool.pipeline.statistics()
    assert (counts["hits"], counts["needed"], counts["misses"], counts["late"]) == (hits, needed, loads, 0)


def test_a_landed_prefetch_is_a_hit_and_used_once():
    with Pool() as pool:
        assert pool.prefetch((2, 1, 0.9, 6)) == 1
        pool.wait_for(lambda: pool.link.transfers == 1)
        pool.wait_for(lambda: pool.enter(0, 0, []).size == 0 and pool.count("prefetch_landed"))
        assert pool.table.state[pool.table.slot_of[2, 1]] == COMPUTE
        pool.event(2, 2, [1])
        pool.event(2, 6, [1])
        counts = pool.pipeline.statistics()
    assert (counts["hits"], counts["prefetch_used"], counts["on_demand_transfers"]) == (2, 1, 0)


def test_a_prefetch_in_flight_is_waited_for_and_late():
    with Pool(seconds=SLOW) as pool:
        pool.prefetch((2, 1, 0.9, 6))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        pool.event(2, 2, [1])
        counts = pool.pipeline.statistics()
    assert (counts["late"], counts["hits"], counts["prefetch_used"], counts["on_demand_transfers"]) == (1, 0, 1, 0)


@pytest.mark.parametrize("deadline", [2, 6])
def test_an_unsent_task_of_a_needed_expert_is_cancelled_loaded_and_late(deadline):
    with Pool(seconds=SLOW) as pool:
        pool.prefetch((3, 1, 0.9, 7))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        pool.prefetch((2, 1, 0.9, deadline))
        pool.event(2, 2, [1])
        counts = pool.pipeline.statistics()
    assert (counts["late"], counts["prefetch_dropped"], counts["on_demand_transfers"]) == (1, 1, 1)


def test_on_demand_loads_go_before_queued_prefetches():
    with Pool(seconds=0.02) as pool:
        pool.prefetch(*((3, expert, 0.9, 7) for expert in range(4)))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        pool.enter(0, 0, [0, 1, 2])
        assert pool.count("prefetch_sent") <= 2
        assert (pool.table.state == FETCH).sum() >= 2


def landing_order(tasks, average):
    with Pool(seconds=0.005, average=average) as pool:
        seen = []
        pool.prefetch(*tasks)

        def all_landed():
            pool.enter(0, 0, [])
            landed = [task[1] for task in tasks if pool.table.state[pool.table.slot_of[task[:2]]] == COMPUTE]
            seen.extend(expert for expert in landed if expert not in seen)
            return len(seen) == len(tasks)

        pool.wait_for(all_landed)
        return seen


def test_the_worker_sends_what_the_schedule_selects():
    tasks = [(1, 0, 0.3, 9), (1, 1, 0.9, 9), (1, 2, 0.5, 5), (1, 3, 0.9, 7)]
    assert landing_order(tasks, average=4.0) == [2, 3, 1, 0], "enough budget: the earliest deadline first"
    # No budget beyond one transfer: only the most confident task is feasible, ties by the earlier deadline.
    assert landing_order(tasks, average=0.0) == [3, 1, 2, 0]


def test_prefetch_skips_what_has_a_slot_and_what_comes_too_late():
    with Pool(seconds=SLOW) as pool:
        pool.event(1, 1, [0])
        assert pool.prefetch((1, 0, 0.9, 9), (1, 1, 0.8, 9), (1, 1, 0.7, 9), (1, 2, 0.9, 2)) == 1
        assert pool.prefetch((1, 1, 0.9, 9)) == 0
        assert pool.table.slot_of[1, 2] == -1


def test_prefetch_takes_the_most_confident_within_the_limit():
    with Pool(seconds=SLOW, fetch_limit=2) as pool:
        assert pool.prefetch((1, 0, 0.1, 9), (1, 1, 0.3, 9), (1, 2, 0.2, 9)) == 2
        assert (pool.table.slot_of[1, :3] >= 0).tolist() == [False, True, True]


def test_prefetch_evicts_in_the_order_of_scores_and_spares_the_current_event():
    with Pool(slots=4, seconds=SLOW) as pool:
        pool.event(0, 0, [0, 1])
        pool.table.score[0, :2] = [0.5, 0.4]
        pool.event(1, 1, [2, 3])
        assert pool.prefetch((3, 0, 0.9, 7)) == 1
        assert pool.table.slot_of[0, :2].tolist() == [0, -1]
        assert pool.prefetch((3, 1, 0.9, 7), (3, 2, 0.9, 7)) == 1
        assert (pool.table.slot_of[1, 2:4] >= 0).all()


def test_expired_tasks_are_dropped_and_their_slots_freed():
    with Pool(seconds=SLOW) as pool:
        pool.prefetch((3, 0, 0.9, 3), (3, 1, 0.8, 3), (3, 2, 0.8, 9))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        pool.enter(3, 3, [])
        assert pool.count("prefetch_dropped") == 1
        assert pool.table.slot_of[3, 1] == -1
        assert pool.table.slot_of[3, 2] >= 0


def test_a_new_request_drops_the_tasks_of_the_old_one():
    with Pool(seconds=SLOW) as pool:
        pool.enter(0, 100, [])
        pool.prefetch(*((1, expert, 0.9, 105) for expert in range(4)))
        pool.enter(0, 0, [])
        assert pool.count("prefetch_dropped") >= 3


def test_a_prefetch_that_lands_after_its_layer_is_evictable():
    with Pool(seconds=0.02) as pool:
        pool.prefetch((1, 0, 0.9, 2))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        pool.enter(0, 4, [])
        pool.wait_for(lambda: pool.link.transfers == 1)
        pool.wait_for(lambda: pool.enter(0, 4, []).size == 0 and pool.count("prefetch_landed"))
        assert pool.table.state[pool.table.slot_of[1, 0]] == USED


def test_evict_after_layer_keeps_nothing_but_spares_the_layer_while_it_is_computed():
    with Pool(evict_after_layer=True) as pool:
        for position in range(6):
            slots = pool.event(1, position, [2, 4])
            assert pool.holds(1, [2, 4], slots)
        assert pool.count("misses") == pool.count("needed") == 12
        pool.enter(2, 7, [])
        assert (pool.table.state == EMPTY).all()


def test_the_budget_learns_the_rate_of_the_link():
    with Pool(slots=32, seconds=0.002, average=8.0) as pool:
        for position in range(16):
            pool.prefetch(*((layer, expert, 0.5, 500) for layer in range(4) for expert in range(8)))
            pool.enter(0, position, [])
            moved = pool.link.transfers
            pool.wait_for(lambda moved=moved: pool.link.transfers > moved or moved == 32)
        assert 0 < pool.budget.average < 7


def test_more_experts_than_slots_is_refused_with_both_numbers():
    with Pool(slots=3) as pool, pytest.raises(RuntimeError, match=r"needs 4 experts.* 3 slots"):
        pool.pipeline.enter(0, 0, np.arange(4, dtype=np.int32))


def test_wrong_arguments_are_refused():
    with Pool() as pool:
        for experts, error in (([1, 1], ValueError), ([8], IndexError)):
            with pytest.raises(error):
                pool.pipeline.enter(0, 0, np.array(experts, dtype=np.int32))
        with pytest.raises(IndexError):
            pool.prefetch((4, 0, 0.5, 9))
        with pytest.raises(ValueError):
            pool.prefetch((0, 0, np.nan, 9))
        with pytest.raises(ValueError):
            pool.pipeline.prefetch(np.zeros(2, np.int32), np.zeros(1, np.float32), np.zeros(2, np.int64))
        assert (pool.table.state == EMPTY).all()
