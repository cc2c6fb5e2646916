"""Protects the worker's manners: it ends at once, costs nothing when it has nothing to do, and keeps no memory."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from pool_of_bytes import Pool

from seqmoe.core.budget import TransferBudget
from seqmoe.core.link import Link
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable


def stop_in_flight(pool):
    """Seconds that stop() takes in the middle of a transfer of 20 s, with more tasks queued."""
    with pool:
        pool.prefetch(*((1, expert, 0.9, 9) for expert in range(8)))
        pool.wait_for(lambda: pool.count("prefetch_sent"))
        time.sleep(0.05)
        start = time.monotonic()
        pool.pipeline.stop()
        return time.monotonic() - start


def test_stop_takes_less_than_100_ms_in_the_middle_of_a_transfer():
    # The best of three: a busy machine may let the thread wait for longer.
    assert min(stop_in_flight(Pool(seconds=20.0)) for _ in range(3)) < 0.1


def test_stop_abandons_a_long_copy_and_frees_its_slot():
    size = 64 << 20
    host, device = np.zeros(size, np.uint8), np.empty(size, np.uint8)
    for _ in range(50):
        table = SlotTable(1, 1, 1)
        link = Link([(host.ctypes.data, device.ctypes.data, size)])
        pipeline = OffloadPipeline(table, link, TransferBudget(1.0))
        pipeline.prefetch(np.zeros(1, np.int32), np.ones(1, np.float32), np.array([9]))
        while not pipeline.statistics()["prefetch_sent"]:
            pass
        pipeline.stop()
        counts = pipeline.statistics()
        assert counts["prefetch_failed"] + counts["prefetch_landed"] == 1
        assert (table.slot_of[0, 0] == -1) == (counts["prefetch_failed"] == 1) == (link.transfers == 0)
        if counts["prefetch_failed"]:
            return
    pytest.fail("no copy was abandoned")


def nothing_queued(pool):
    pool.event(0, 0, [0])


def no_room(pool):
    pool.enter(0, 0, range(8))
    pool.prefetch((1, 0, 0.9, 9), (1, 1, 0.9, 9))


def paused(pool):
    pool.pipeline.paused = True
    pool.prefetch((1, 0, 0.9, 9), (1, 1, 0.9, 9))


@pytest.mark.parametrize("state", [nothing_queued, no_room, paused])
def test_a_worker_with_nothing_to_do_uses_no_processor(state):
    with Pool() as pool:
        state(pool)
        pool.pipeline.settle()
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.03
        if state is not nothing_queued:
            assert pool.count("prefetch_sent") == 0, "there was something that could not be sent"


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads its memory through /proc")
def test_memory_is_flat_over_100_000_events():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    rng = np.random.default_rng(0)
    needed = [rng.permutation(32)[:4].astype(np.int32) for _ in range(97)]
    keys = rng.integers(0, 8 * 32, (101, 40)).astype(np.int32)
    confidence = rng.random((101, 40), dtype=np.float32)
    with Pool(layers=8, experts=32, slots=38, average=4.0, fail_every=100) as pool:
        pipeline, after_warm_up = pool.pipeline, 0
        for position in range(100_000):
            layer = position % 8
            pipeline.enter(layer, position, needed[position % 97])
            if layer in (3, 7):
                task = keys[position % 101]
                pipeline.prefetch(task, confidence[position % 101], position - layer + 8 + task.astype(np.int64) // 32)
            pipeline.leave(layer)
            if position == 10_000:
                after_warm_up = resident()
        assert pool.count("prefetch_sent") > 1000
        assert resident() - after_warm_up < 2 << 20
