"""Protects what happens when a transfer fails: its slot is freed and the expert comes on demand."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from pool_of_bytes import Pool

from seqmoe.core.budget import TransferBudget
from seqmoe.core.link import FailingLink, TransferError
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable


def test_a_failed_prefetch_frees_its_slot_and_is_loaded_on_demand():
    with Pool(fail_every=1) as failing:
        failing.prefetch((2, 1, 0.9, 6))
        failing.pipeline.settle()
        failing.enter(0, 0, [])
        assert (failing.table.slot_of == -1).all()
        assert failing.count("prefetch_failed") == failing.count("prefetch_sent") == 1
    with Pool(fail_every=2) as pool:
        pool.prefetch((2, 0, 0.9, 6), (2, 1, 0.8, 7))
        pool.pipeline.settle()
        pool.event(2, 2, [0, 1])
        counts = pool.pipeline.statistics()
    expected = {"hits": 1, "misses": 1, "late": 0, "prefetch_landed": 1, "prefetch_failed": 1, "on_demand_transfers": 1}
    assert {name: counts[name] for name in expected} == expected


def test_a_needed_expert_whose_transfer_fails_in_flight_is_loaded_on_demand():
    with Pool(slots=2) as pool:
        link = FailingLink(pool.link, 2)
        link.seconds_per_expert = 0.2
        table = SlotTable(pool.layers, pool.experts, 2)
        with OffloadPipeline(table, link, TransferBudget(1.0)) as pipeline:
            first = threading.Thread(target=link.transfer, args=(0, 1))
            first.start()
            pool.wait_for(lambda: pool.link.transfers == 1)
            pipeline.prefetch(np.array([17], np.int32), np.ones(1, np.float32), np.array([6]))
            pool.wait_for(lambda: pipeline.statistics()["prefetch_sent"])
            slots = pipeline.enter(2, 2, np.array([1], np.int32))
            first.join()
            assert pool.holds(2, [1], slots)
            counts = pipeline.statistics()
    expected = {"late": 1, "misses": 0, "prefetch_failed": 1, "on_demand_transfers": 1, "on_demand_failed": 0}
    assert {name: counts[name] for name in expected} == expected


def test_a_load_on_demand_survives_single_faults():
    with Pool(fail_every=2) as pool:
        for position in range(12):
            pool.event(position % 4, position, [0, 1, 2])
        assert pool.count("on_demand_failed") == pool.count("on_demand_transfers") - 1 > 10


def test_a_load_on_demand_that_fails_three_times_is_an_error_and_holds_nothing():
    with Pool(fail_every=1, slots=2) as pool:
        for position in range(3):
            with pytest.raises(TransferError, match=f"transfer {3 * position + 3} fails"):
                pool.enter(0, position, [3, 4])
        assert pool.count("on_demand_failed") == 9
        assert pool.count("on_demand_transfers") == 0
        assert (pool.table.slot_of == -1).all()


def test_a_worker_that_ends_while_inference_waits_for_it_is_an_error():
    with Pool() as pool:
        outer = FailingLink(pool.link, 1000)
        outer.seconds_per_expert = 0.2
        with OffloadPipeline(SlotTable(4, 8, 8), outer, TransferBudget(1.0)) as pipeline:
            first = threading.Thread(target=outer.transfer, args=(0, 7))
            first.start()
            pool.wait_for(lambda: pool.link.transfers == 1)
            pipeline.prefetch(np.array([17], np.int32), np.ones(1, np.float32), np.array([6]))
            pool.wait_for(lambda: pipeline.statistics()["prefetch_sent"])
            pool.link.close()
            for call in (lambda: pipeline.enter(2, 2, np.array([1], np.int32)), pipeline.settle):
                with pytest.raises(RuntimeError, match="closed"):
                    call()
            first.join()


def test_waiting_is_told_apart_from_the_pipelines_own_work():
    with Pool(seconds=0.03) as pool:
        pool.event(0, 0, [0, 1])
        pool.event(0, 1, [0, 1])
        counts = pool.pipeline.statistics()
        assert 0.06 <= counts["on_demand_seconds"] <= counts["stall_seconds"]
        assert 0 < counts["enter_seconds"] < 0.03
        pool.prefetch((2, 1, 0.9, 6))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        pool.event(2, 2, [1])
        late = pool.pipeline.statistics()
    assert late["on_demand_seconds"] == counts["on_demand_seconds"]
    assert late["late"] == 0 or late["stall_seconds"] > counts["stall_seconds"]
