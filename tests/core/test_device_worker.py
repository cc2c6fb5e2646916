"""Protects the device's worker: its choices are the twin's; no slot is lost, no expert twice, no byte wrong."""

from __future__ import annotations

import numpy as np
import pytest
from device_case import Case, drive
from hypothesis import given, settings
from hypothesis import strategies as st
from twins.device_worker import FARTHEST, WorkerTwin

from seqmoe.core.control import FAILED, LENT, MISSES_BEGUN, MISSES_DONE, TAKEN, TASKS
from seqmoe.core.schedule import ORDERS

# Some alike, all exact in float32, and one that is none.
CONFIDENCE = [0.125, 0.5, 0.5, 0.75, 0.25, 0.875, 0.375, 1.0, 0.0, np.nan]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(4, 20),
    want=st.integers(1, 6),
    tasks=st.integers(0, 30),
    clobber=st.booleans(),
    capacity=st.sampled_from([8, 64]),
    order=st.sampled_from(ORDERS),
    seconds=st.sampled_from([0.0, 1e-5, 3e-4]),
    average=st.sampled_from([0.0, 0.5, 4.0]),
    fail_every=st.sampled_from([None, None, 1, 2, 7]),
)
def test_no_slot_is_lost_and_every_byte_is_right(seed, want, tasks, clobber, **options):
    with Case(**options) as case:
        drive(case, np.random.default_rng(seed), 10, 3, want, tasks, clobber)
        case.check_account()


def test_prefetches_are_sent_and_land():
    """Without it the account above might hold because nothing ever happens."""
    with Case(average=4.0, slots=16) as case:
        drive(case, np.random.default_rng(0), 200, 3, 4, 20)
        counts = case.check_account()
        assert counts["landed"] > 100 and counts["overdue"] > 0 and counts["duplicate"] > 0


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    order=st.sampled_from(ORDERS),
    average=st.sampled_from([0.0, 0.4, 1.0, 3.0]),
    fail_every=st.sampled_from([None, 1, 3]),
)
def test_what_is_kept_and_sent_is_the_twins(seed, order, average, fail_every):
    rng = np.random.default_rng(seed)
    with Case(layers=3, experts=4, order=order, average=average, fail_every=fail_every) as case:
        twin = WorkerTwin(order, case.layers, len(case.host), average)
        device, words = case.device, case.control.words
        sent = 0
        for _ in range(25):
            words[MISSES_BEGUN] += 1  # nothing is sent until the worker has seen all that follows
            if rng.random() < 0.3:
                twin.unprocessed -= {key for _, _, key in device.land()}
                case.sync()
            elif rng.random() < 0.1:
                device.arrive(0)
                case.sync()
                case.worker.forget()
                twin.arrive(0)
                twin.forget()
            elif rng.random() < 0.6:
                device.arrive(max(0, twin.position + int(rng.integers(-1, 4))))
                case.sync()
                twin.arrive(int(words[0]))
            for _ in range(rng.integers(0, 6)):
                deadline = twin.position + int(rng.choice([0, 1, 2, 3, 4, 6, FARTHEST, FARTHEST + 1]))
                key, confidence = int(rng.integers(-1, 13)), float(rng.choice(CONFIDENCE))
                device.write_task(key, deadline, confidence)
                twin.read(key, deadline, confidence)
            device.lend(device.lent_out() + int(rng.integers(0, 3)))
            case.sync()
            expected = []
            twin.passed()
            before, free = case.landings(), int(words[LENT]) - case.landings()
            while len(expected) < free and (key := twin.send()) is not None:
                sent += 1
                fails = fail_every and sent % fail_every == 0
                expected.append(-1 if fails else key)
                twin.unprocessed |= set() if fails else {key}
            words[MISSES_DONE] += 1
            case.wait_for_landings(before + len(expected))
            case.sync()
            ring = case.control.landings[(before + np.arange(case.landings() - before)) % case.control.capacity]
            assert list(ring[:, 2]) == expected
        counts = case.worker.statistics()
        # Which of the two a task of sync() is, when the position falls, depends on who is first.
        assert counts["refused"] + counts["overdue"] == twin.refused + twin.overdue + case.synced
        assert counts["overdue"] >= twin.overdue and counts["refused"] >= twin.refused
        assert (counts["duplicate"], counts["sent"]) == (twin.duplicate, sent)
        assert case.worker.queued == len(twin.queue)
        case.check_account()


def test_nothing_begins_while_misses_are_copied():
    with Case(average=4.0) as case:
        case.control.words[MISSES_BEGUN] = 1
        case.device.lend(2)
        case.device.dispatch([(9, 9, 0.5), (10, 9, 0.5)])
        case.sync()
        assert case.landings() == 0 and case.count("sent") == 0
        case.control.words[MISSES_DONE] = 1
        case.wait_for(lambda: case.landings() == 2)
        case.check_account()


def test_a_paused_worker_sends_nothing_and_keeps_no_slot():
    with Case(average=4.0) as case:
        case.worker.paused = True
        case.device.lend(3)
        case.device.dispatch([(9, 9, 0.5)])
        case.wait_for(lambda: case.landings() == 3)
        assert [key for _, _, key in case.device.land()] == [-1, -1, -1]
        case.worker.paused = False
        case.device.lend(1)
        case.wait_for(lambda: case.landings() == 4)
        assert [key for _, _, key in case.device.land()] == [9]
        case.check_account()


def test_a_task_that_was_written_before_its_experts_landing_was_processed_is_a_duplicate():
    with Case(average=4.0) as case:
        case.device.lend(2)
        case.device.dispatch([(9, 9, 0.5)])
        case.wait_for_landings(1)
        case.link.seconds_per_expert = 0.3
        case.device.dispatch([(10, 9, 0.5)])
        case.wait_for(lambda: case.count("sent") == 2)
        # The worker sees both of these only when its transfer has ended.
        case.device.write_task(9, 9, 0.9)
        case.device.land()
        case.sync()
        assert case.count("duplicate") == 1 and case.worker.queued == 0
        case.device.write_task(9, 9, 0.9)  # the device wants it again, having seen it come
        case.sync()
        assert case.count("duplicate") == 1 and case.worker.queued == 1
        case.check_account()


def test_a_prefetch_that_lands_behind_its_deadline_is_late_and_does_not_double_its_expert():
    with Case(average=4.0, seconds=0.2) as case:
        case.device.lend(1)
        case.device.dispatch([(9, 5, 0.5)])
        case.wait_for(lambda: case.count("sent") == 1)
        case.device.arrive(5)
        case.device.event([9])
        case.wait_for(lambda: case.landings() == 1)
        case.device.land()
        counts = case.check_account()
        assert case.device.was_resident == 1 and counts["late"] == 1


def test_the_budget_learns_from_what_is_sent_per_layer():
    with Case(average=1.0, seconds=0.005) as case:
        case.device.dispatch([(key, 60, 0.5) for key in range(32)])
        for position in range(1, 11):
            case.device.lend(6)
            case.wait_for_landings(2 * position)
            case.device.arrive(position)
            case.device.land()
            case.device.event([])
        assert case.budget.average > 1.2
        case.check_account()


def test_a_ring_that_was_written_over_is_counted_and_survived():
    with Case(capacity=8, average=4.0) as case:
        case.worker.stop()
        words = case.control.words
        taken = int(words[TAKEN])
        with case.start(case.link) as worker:
            case.worker = worker
            words[MISSES_BEGUN] = 1
            index = int(words[TASKS])
            case.control.tasks[:] = [[key, 50, 0] for key in range(8)]
            words[TASKS] = index + 13
            case.wait_for(lambda: words[TAKEN] == taken + 13)
            assert case.count("overrun") == 5 and worker.queued == 8
            words[MISSES_DONE] = 1
        case.check_account()


def test_an_error_gives_every_slot_back_and_is_raised_by_check():
    with Case(average=4.0) as case:
        case.link.close()
        case.device.lend(3)
        case.device.dispatch([(9, 9, 0.5)])
        with pytest.raises(RuntimeError, match="closed"):
            case.wait_for(lambda: False)
        case.worker.stop()
        assert case.control.words[FAILED] == 1
        with pytest.raises(RuntimeError, match="closed"):
            case.worker.check()
        case.check_account()


def test_a_slot_outside_the_pool_ends_the_worker():
    with Case(slots=8) as case:
        case.control.lent[0] = 8, 1
        case.control.words[LENT] = 1
        with pytest.raises(RuntimeError, match="slot 8 of 8"):
            case.wait_for(lambda: False)
        assert (case.pool == 0).all()


def test_a_later_worker_takes_up_where_the_first_one_ended():
    with Case(average=4.0) as case:
        case.device.lend(2)
        case.device.dispatch([(9, 9, 0.5)])
        case.wait_for(lambda: case.landings() == 1)
        case.worker.stop()
        assert case.landings() == 2
        case.device.write_task(10, 9, 0.5)  # to no one
        case.device.write_task(9, 9, 0.5)
        case.device.lend(4)  # two more, between the workers
        with case.start(case.link) as second:
            case.worker = second
            case.device.write_task(9, 9, 0.5)  # has landed, which the device has not seen
            case.sync()
            assert second.statistics()["duplicate"] == 1
            case.device.land()
            case.device.dispatch([(11, 9, 0.5)])
            case.wait_for(lambda: case.landings() == 3)
            second.stop()
            assert sorted(key for _, _, key in case.device.land()) == [-1, 11]
            assert case.device.lent_out() == 0
            case.device.check_bytes()


def test_what_is_no_region_or_no_order_is_refused():
    with Case() as case:
        for words in (np.zeros(16, np.int64), np.zeros(200, np.int64), case.control.words[:-1].copy()):
            case.control, good = type("Words", (), {"words": words}), case.control
            with pytest.raises(ValueError, match="control region"):
                case.start(case.link)
            case.control = good
        case.order = "random"
        with pytest.raises(ValueError, match="must be one of matroid"):
            case.start(case.link)
