"""Protects the pipeline's two threads: the right bytes under any timing, no deadlock, no lost failure, no leftover."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_of_bytes import Pool
from twins.slots import EMPTY, FETCH

from seqmoe.core.schedule import ORDERS


def native_threads():
    return len(os.listdir("/proc/self/task"))


linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads through /proc")


def drive(pool, rng, steps, top_k, tasks):
    """A decode with random routing and random prefetches after every event; checks bytes when they are read.

    Events need 0 to top_k experts: a small one leaves room that prefetches take and the next large one must get back.
    """
    layers, experts = pool.layers, pool.experts
    for position in range(steps * layers):
        layer = position % layers
        pool.table.score[:] = rng.random((layers, experts))
        if rng.random() < 0.05:
            pool.pipeline.order = ORDERS[rng.integers(len(ORDERS))]
            pool.table.fetch_limit = int(rng.integers(0, pool.table.slots + 1))
        needed = rng.choice(experts, size=rng.integers(0, top_k + 1), replace=False)
        slots = pool.enter(layer, position, needed)
        where = rng.integers(0, layers * experts, tasks)
        deadline = position - layer + layers + where // experts + rng.integers(-1, 2, tasks)
        pool.pipeline.prefetch(where.astype(np.int32), rng.random(tasks, dtype=np.float32), deadline)
        pool.pipeline.leave(layer)
        if rng.random() < 0.1:
            pool.pipeline.settle()
        assert pool.holds(layer, needed, slots), "a prefetch wrote into the layer under computation"
        owner, state = pool.pipeline.pool()
        assert ((owner < 0) == (state == EMPTY)).all()
        assert len(np.unique(owner[owner >= 0])) == (owner >= 0).sum()


def check_account(pool):
    pool.pipeline.stop()
    counts = pool.pipeline.statistics()
    assert counts["needed"] == counts["hits"] + counts["late"] + counts["misses"]
    assert counts["prefetch_created"] == counts["prefetch_sent"] + counts["prefetch_dropped"]
    assert counts["prefetch_landed"] + counts["prefetch_failed"] == counts["prefetch_sent"]
    assert counts["prefetch_used"] + counts["prefetch_wasted"] <= counts["prefetch_landed"]
    assert pool.link.transfers == counts["prefetch_landed"] + counts["on_demand_transfers"]
    assert not (pool.table.state == FETCH).any()


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(3, 20),
    reserve=st.sampled_from(["selection", "selection", "creation"]),
    spare=st.integers(0, 3),
    seconds=st.sampled_from([0.0, 1e-5, 1e-4, 5e-4]),
    tasks=st.integers(0, 40),
    average=st.sampled_from([0.0, 0.5, 4.0]),
    fail_every=st.sampled_from([None, None, 2, 3, 10]),
    evict_after_layer=st.booleans(),
)
def test_every_slot_holds_the_right_bytes(seed, slots, spare, tasks, **options):
    with Pool(layers=4, experts=8, slots=slots, fetch_limit=slots - spare, **options) as pool:
        drive(pool, np.random.default_rng(seed), steps=8, top_k=3, tasks=tasks)
        check_account(pool)


@pytest.mark.parametrize("reserve", ["creation", "selection"])
@pytest.mark.parametrize("top_k", [1, 4])
def test_no_deadlock_with_as_many_slots_as_one_token_needs(top_k, reserve):
    with Pool(layers=6, experts=8, slots=top_k, seconds=2e-5, reserve=reserve) as pool:
        drive(pool, np.random.default_rng(top_k), steps=100, top_k=top_k, tasks=200)
        check_account(pool)


@pytest.mark.parametrize("reserve", ["creation", "selection"])
def test_many_tasks_and_a_link_that_never_catches_up(reserve):
    with Pool(layers=24, experts=32, slots=115, seconds=3e-4, fetch_limit=111, reserve=reserve) as pool:
        drive(pool, np.random.default_rng(0), steps=4, top_k=4, tasks=168)
        check_account(pool)


@pytest.mark.parametrize("share", [0.04, 0.15])
def test_stress(share):
    """As fast as both threads go, in pools that are always too small."""
    layers, experts = 24, 32
    with Pool(layers, experts, slots=round(share * layers * experts), average=4.0, fail_every=50) as pool:
        drive(pool, np.random.default_rng(1), steps=60, top_k=8, tasks=60)
        check_account(pool)


def test_a_failure_in_the_worker_surfaces_and_frees_its_slot():
    with Pool() as pool:
        pool.link.close()
        pool.prefetch((1, 0, 0.9, 9))
        pool.wait_for(lambda: pool.count("prefetch_sent"))

        def failed():
            try:
                pool.enter(0, 0, [])
            except RuntimeError as error:
                return "closed" in str(error)
            return False

        pool.wait_for(failed)
        assert pool.table.slot_of[1, 0] == -1
        with pytest.raises(RuntimeError, match="closed"):
            pool.prefetch((1, 1, 0.9, 9))


def test_a_failed_load_leaves_no_expert_behind():
    with Pool() as pool:
        pool.link.close()
        with pytest.raises(RuntimeError, match="closed"):
            pool.enter(0, 0, [3])
        assert (pool.table.slot_of == -1).all()


@linux
def test_stop_ends_the_thread_and_cancels_what_is_queued():
    before = native_threads()
    pool = Pool(seconds=20.0)
    assert native_threads() == before + 1
    pool.prefetch(*((1, expert, 0.9, 9) for expert in range(4)))
    pool.wait_for(lambda: pool.count("prefetch_sent"))
    pool.pipeline.stop()
    assert native_threads() == before
    check_account(pool)
    assert pool.link.busy_seconds < 10, "a stopped worker does not sit out its pace"
    for call in (lambda: pool.enter(0, 0, []), lambda: pool.prefetch((0, 0, 0.5, 9))):
        with pytest.raises(RuntimeError, match="stopped"):
            call()


@linux
@pytest.mark.parametrize("busy", [False, True])
def test_a_forgotten_pipeline_ends_its_thread(busy):
    before = native_threads()
    pool = Pool(seconds=0.01)
    if busy:
        pool.prefetch((1, 0, 0.9, 9), (1, 1, 0.9, 9))
    del pool.pipeline
    assert native_threads() == before


@linux
def test_the_context_manager_ends_the_thread():
    before = native_threads()
    with Pool().pipeline as pipeline:
        assert native_threads() == before + 1
        pipeline.statistics()
    assert native_threads() == before


def test_other_python_threads_run_while_inference_waits():
    with Pool(seconds=0.02) as pool:
        ran = threading.Event()
        thread = threading.Timer(0.005, ran.set)
        thread.start()
        pool.enter(0, 0, list(range(8)))
        assert ran.is_set()
        thread.join()
