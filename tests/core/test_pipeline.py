"""Protects the pipeline's account: what is a hit, late or a miss, which task goes first, and what is dropped when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_of_bytes import Pool
from twins.replay import replay
from twins.slots import COMPUTE, EMPTY, FETCH, USED


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
        pool.let_land(0, 0, 1)
        assert pool.table.state[pool.table.slot_of[2, 1]] == COMPUTE
        pool.event(2, 2, [1])
        pool.event(2, 6, [1])
        counts = pool.pipeline.statistics()
    assert (counts["hits"], counts["prefetch_used"], counts["on_demand_transfers"]) == (2, 1, 0)


def test_a_prefetch_in_flight_is_waited_for_and_late():
    with Pool() as pool:
        pool.send_slowly(2, 1, 0.9, 6)
        pool.event(2, 2, [1])
        counts = pool.pipeline.statistics()
    assert (counts["late"], counts["hits"], counts["prefetch_used"], counts["on_demand_transfers"]) == (1, 0, 1, 0)


@pytest.mark.parametrize("deadline", [2, 6])
def test_an_unsent_task_of_a_needed_expert_is_cancelled_and_a_miss(deadline):
    with Pool() as pool:
        pool.send_slowly(3, 1, 0.9, 7)
        pool.prefetch((2, 1, 0.9, deadline))
        pool.event(2, 2, [1])
        counts = pool.pipeline.statistics()
    assert (counts["late"], counts["misses"], counts["late_unsent"]) == (0, 1, 1)
    assert (counts["prefetch_dropped"], counts["on_demand_transfers"]) == (1, 1)


def test_on_demand_loads_go_before_queued_prefetches():
    with Pool() as pool:
        pool.send_slowly(3, 7, 0.9, 7)
        pool.prefetch(*((3, expert, 0.9, 7) for expert in range(4)))
        pool.link.seconds_per_expert = 0.05
        pool.enter(0, 0, [0, 1, 2])
        # One more may start when the event is over, none before it.
        assert pool.count("prefetch_sent") <= 2


def landing_order(tasks, average):
    """Experts in the order in which they landed; where two were seen to land at once, it is tried again."""
    with Pool(seconds=0.005, average=average) as pool:
        pool.prefetch(*tasks)
        seen = []
        for landed in range(1, len(tasks) + 1):
            pool.let_land(0, 0, landed)
            here = [
                expert
                for layer, expert, _, _ in tasks
                if pool.table.state[pool.table.slot_of[layer, expert]] == COMPUTE
            ]
            if len(here) != landed:
                return landing_order(tasks, average)
            seen += set(here) - set(seen)
        return seen


def test_the_worker_sends_what_the_schedule_selects():
    tasks = [(1, 0, 0.3, 9), (1, 1, 0.9, 9), (1, 2, 0.5, 5), (1, 3, 0.9, 7)]
    assert landing_order(tasks, average=4.0) == [2, 3, 1, 0], "enough budget: the earliest deadline first"
    # No budget beyond one transfer: only the most confident task is feasible, ties by the earlier deadline.
    assert landing_order(tasks, average=0.0) == [3, 1, 2, 0]


def test_equal_tasks_are_sent_in_the_order_of_their_keys():
    assert landing_order([(1, expert, 0.5, 9) for expert in (3, 1, 2, 0)], average=4.0) == [0, 1, 2, 3]


def test_prefetch_skips_what_has_a_slot_and_what_comes_too_late():
    with Pool() as pool:
        pool.event(1, 1, [0])
        assert pool.prefetch((1, 0, 0.9, 9), (1, 1, 0.8, 9), (1, 1, 0.7, 9), (1, 2, 0.9, 2)) == 1
        assert pool.prefetch((1, 1, 0.9, 9)) == 0
        assert pool.table.slot_of[1, 2] == -1


def test_prefetch_takes_the_most_confident_within_the_limit():
    with Pool(fetch_limit=2, reserve="creation") as pool:
        assert pool.prefetch((1, 0, 0.1, 9), (1, 1, 0.3, 9), (1, 2, 0.2, 9)) == 2
        assert (pool.table.slot_of[1, :3] >= 0).tolist() == [False, True, True]


def test_prefetch_evicts_in_the_order_of_scores_and_spares_the_current_event():
    with Pool(slots=4, reserve="creation") as pool:
        pool.event(0, 0, [0, 1])
        pool.table.score[0, :2] = [0.5, 0.4]
        pool.event(1, 1, [2, 3])
        assert pool.prefetch((3, 0, 0.9, 7)) == 1
        assert pool.table.slot_of[0, :2].tolist() == [0, -1]
        assert pool.prefetch((3, 1, 0.9, 7), (3, 2, 0.9, 7)) == 1
        assert (pool.table.slot_of[1, 2:4] >= 0).all()


def test_expired_tasks_are_dropped_and_their_slots_freed():
    with Pool(reserve="creation") as pool:
        pool.send_slowly(3, 0, 0.9, 3)
        pool.prefetch((3, 1, 0.8, 3), (3, 2, 0.8, 9))
        pool.enter(3, 3, [])
        assert pool.count("prefetch_dropped") == 1
        assert pool.table.slot_of[3, 1] == -1
        assert pool.table.slot_of[3, 2] >= 0


def test_a_new_request_drops_the_tasks_of_the_old_one():
    with Pool() as pool:
        pool.enter(0, 100, [])
        pool.send_slowly(1, 7, 0.9, 105)
        pool.prefetch(*((1, expert, 0.9, 105) for expert in range(4)))
        pool.enter(0, 0, [])
        assert pool.count("prefetch_dropped") == 4


def test_a_prefetch_that_lands_after_its_layer_is_evictable():
    with Pool() as pool:
        pool.send_slowly(1, 0, 0.9, 2)
        pool.let_land(0, 4, 1)
        assert pool.table.state[pool.table.slot_of[1, 0]] == USED


def test_a_prefetch_that_is_landed_after_its_layer_is_evictable():
    with Pool() as pool:
        pool.prefetch((1, 0, 0.9, 2), (3, 0, 0.9, 7))
        pool.wait_for(lambda: pool.link.transfers == 2)
        pool.enter(0, 4, [])
        assert pool.table.state[pool.table.slot_of[1, 0]] == USED


def test_evict_after_layer_keeps_nothing_but_spares_the_layer_while_it_is_computed():
    with Pool(evict_after_layer=True) as pool:
        for position in range(6):
            slots = pool.event(1, position, [2, 4])
            pool.prefetch(*((3, expert, 0.9, 99) for expert in range(8)))
            pool.pipeline.settle()
            assert pool.count("prefetch_sent") == 6
            assert pool.holds(1, [2, 4], slots)
        assert pool.count("misses") == pool.count("needed") == 12
        pool.enter(2, 7, [])
        assert (pool.table.slot_of[1] == -1).all()


def test_an_unused_prefetch_is_not_credited_to_the_next_expert_in_its_slot():
    with Pool(slots=1) as pool:
        pool.prefetch((1, 0, 0.9, 3))
        pool.let_land(0, 0, 1)
        pool.event(1, 1, [])
        for position in (5, 9):
            pool.event(1, position, [7])
        counts = pool.pipeline.statistics()
    assert (counts["hits"], counts["prefetch_used"], counts["prefetch_wasted"]) == (1, 0, 1)


def test_a_prefetch_from_before_a_reset_is_never_wasted_after_its_use():
    with Pool(slots=1) as pool:
        pool.prefetch((1, 0, 0.9, 3))
        pool.let_land(0, 0, 1)
        pool.pipeline.reset_statistics()
        pool.event(1, 1, [0])
        pool.event(1, 5, [7])
        counts = pool.pipeline.statistics()
    assert (counts["prefetch_used"], counts["prefetch_wasted"]) == (1, 0)


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_an_event_takes_back_the_newest_unsent_tasks(needed):
    with Pool(slots=4, reserve="creation") as pool:
        pool.send_slowly(3, 0, 0.2, 7)
        pool.prefetch((3, 1, 0.5, 7), (3, 2, 0.9, 7), (3, 3, 0.7, 7))
        pool.enter(0, 0, range(needed))
        dropped = (pool.table.slot_of[3, [1, 3, 2]] == -1).tolist()
        assert dropped == [place < needed for place in range(3)]


def test_an_event_takes_back_the_landed_prefetch_with_the_lowest_score():
    with Pool(slots=3) as pool:
        pool.table.score[3, :3] = [0.5, 0.3, 0.4]
        pool.prefetch(*((3, expert, 0.9, 7) for expert in range(3)))
        pool.let_land(0, 0, 3)
        pool.enter(0, 0, [0])
        assert (pool.table.slot_of[3, :3] >= 0).tolist() == [True, False, True]


def test_an_event_takes_back_the_slot_of_the_transfer_in_flight_last():
    with Pool(slots=2) as pool:
        pool.send_slowly(3, 0, 0.9, 7)
        pool.enter(0, 0, [0])
        assert pool.table.state[pool.table.slot_of[3, 0]] == FETCH
        pool.enter(0, 4, [0, 1])
        assert pool.table.slot_of[3, 0] == -1


def test_an_event_cannot_take_what_a_layer_not_yet_left_holds():
    with Pool(slots=3) as pool:
        pool.enter(0, 0, [0, 1])
        with pytest.raises(RuntimeError, match="needs 2 experts"):
            pool.pipeline.enter(1, 1, np.arange(2, dtype=np.int32))
        pool.pipeline.leave(0)
        pool.enter(1, 1, [0, 1])


def test_an_event_that_fails_holds_no_slot():
    with Pool(slots=3) as pool:
        pool.enter(0, 0, [0])
        with pytest.raises(RuntimeError, match="needs 3 experts"):
            pool.pipeline.enter(1, 1, np.arange(3, dtype=np.int32))
        pool.enter(2, 2, [0, 1])


def test_idle_time_teaches_the_budget_nothing():
    with Pool(slots=32, average=1.5) as pool:
        for index in range(16):
            pool.prefetch((1 + index // 8, index % 8, 0.5, 4 * index + 20))
            pool.let_land(0, 4 * index, index + 1)
            pool.enter(0, 4 * index + 4, [])
        assert pool.budget.average == 1.5


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
        with pytest.raises(IndexError):
            pool.pipeline.enter(4, 0, np.array([], dtype=np.int32))
        with pytest.raises(ValueError, match="not a number"):
            pool.prefetch((0, 0, np.nan, 9))
        with pytest.raises(ValueError, match="positions ahead"):
            pool.prefetch((0, 0, 0.5, 2**20 + 1))
        with pytest.raises(ValueError):
            pool.pipeline.prefetch(np.zeros(2, np.int32), np.zeros(1, np.float32), np.zeros(2, np.int64))
        assert (pool.table.state == EMPTY).all()
