"""Protects misses that are computed where they are: which ones, how they are counted, and when they are fetched."""

from __future__ import annotations

import numpy as np
import pytest
from pool_of_bytes import Pool


def enter(pool, layer, position, experts, loads):
    return pool.pipeline.enter(
        layer, position, np.array(experts, dtype=np.int32), np.array(loads, dtype=np.int32)
    ).tolist()


def test_only_so_many_misses_are_loaded_those_with_the_highest_scores():
    with Pool() as pool:
        pool.event(0, 0, [1])
        pool.table.score[0] = [0, 9, 1, 5, 3, 0, 0, 0]
        slots = enter(pool, 0, 4, [1, 2, 3, 4], [0, 1, 1, 1, 1])
        assert [slot >= 0 for slot in slots] == [True, False, True, False]
        assert pool.holds(0, [1, 3], [slots[0], slots[2]])
        assert pool.pipeline.last_event == (1, 0, 1, 2)
        counts = pool.pipeline.statistics()
    assert (counts["needed"], counts["hits"], counts["misses"]) == (5, 1, 4)
    assert (counts["host_computed"], counts["on_demand_transfers"]) == (2, 2)


def test_without_loads_every_miss_is_loaded():
    with Pool() as pool:
        pool.event(0, 0, [1, 2])
        assert pool.pipeline.last_event == (0, 0, 2, 0)
        assert pool.count("host_computed") == 0


def test_a_prefetch_in_flight_is_waited_for_and_not_computed():
    with Pool() as pool:
        pool.send_slowly(2, 1, 0.9, 6)
        assert min(enter(pool, 2, 2, [1], [0, 0])) >= 0
        assert pool.pipeline.last_event == (0, 1, 0, 0)


def test_what_was_computed_is_fetched_for_its_layers_next_turn_into_an_empty_slot():
    with Pool() as pool:
        assert enter(pool, 1, 1, [3], [0, 0]) == [-1]
        pool.pipeline.leave(1)
        assert pool.count("prefetch_created") == 1
        pool.let_land(2, 2, 1)
        assert min(enter(pool, 1, 5, [3], [0, 0])) >= 0
        assert pool.pipeline.last_event == (1, 0, 0, 0)


@pytest.mark.parametrize(("score", "created"), [(2.0, 1), (0.5, 0)])
def test_it_is_fetched_only_if_it_deserves_its_slot_more_than_what_is_there(score, created):
    with Pool(slots=2) as pool:
        pool.table.score[0] = 1.0
        pool.event(0, 0, [1, 2])
        pool.table.score[1, 3] = score
        enter(pool, 1, 1, [3], [0, 0])
        pool.pipeline.leave(1)
        assert pool.count("prefetch_created") == created


def test_forecasts_go_before_it():
    with Pool(slots=8, average=4.0) as pool:
        pool.pipeline.paused = True
        enter(pool, 1, 1, [3], [0, 0])
        pool.pipeline.leave(1)
        pool.prefetch((1, 5, 0.1, 5))
        pool.pipeline.paused = False
        pool.pipeline.settle()
        assert pool.table.slot_of[1, 5] < pool.table.slot_of[1, 3]


def test_loads_that_say_too_little_are_refused():
    with Pool() as pool, pytest.raises(ValueError, match=r"\[n \+ 1\]"):
        enter(pool, 0, 0, [1, 2], [0, 1])
