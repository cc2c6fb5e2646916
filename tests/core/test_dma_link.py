"""Protects the link by the copy engine: bytes are there when it says so, every failure is named, an end is an end."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
from device_case import Case, drive

from seqmoe.core.control import FAILED, MISSES_BEGUN, MISSES_DONE
from seqmoe.core.driver import CudaContext, CudaDriver, CudaError
from seqmoe.core.link import DmaLink

PIECE = 64


@pytest.fixture
def context(stub_cuda):
    return CudaContext(CudaDriver(stub_cuda.cuda))


def dma(context, host, pool, piece_bytes=PIECE, seconds=0.0):
    """A link whose experts are of two pieces, the second one smaller; host and pool are int64 [keys or slots, n]."""
    row, first = host.strides[0], host.strides[0] // 4 * 3
    starts = host.ctypes.data + row * np.arange(len(host))
    sources = np.stack([starts, starts + first], axis=1).astype(np.int64)
    targets = [(pool.ctypes.data, row, first), (pool.ctypes.data + first, row, row - first)]
    return DmaLink(context, sources, targets, seconds, piece_bytes)


def case_over(context, **options):
    return Case(make_link=lambda host, pool: dma(context, host, pool), average=4.0, **options)


@pytest.fixture
def memory():
    host = np.random.default_rng(0).integers(1, 2**63, (6, 40))
    return host, np.zeros((4, 40), dtype=np.int64)


@pytest.mark.parametrize(("piece_bytes", "pieces"), [(1 << 20, 2), (PIECE, 4 + 2), (7, 35 + 12)])
def test_an_expert_arrives_whole_in_its_slot_alone(stub_cuda, context, memory, piece_bytes, pieces):
    host, pool = memory
    link = dma(context, host, pool, piece_bytes)
    for key, slot in ((5, 0), (0, 3), (2, 0)):
        stub_cuda.native.stub_reset()
        before = pool.copy()
        link.transfer(key, slot)
        before[slot] = host[key]
        assert (pool == before).all()
        assert stub_cuda.calls("cuMemcpyHtoDAsync_v2") == pieces
    assert (link.transfers, link.bytes) == (3, 3 * 320)


def test_a_transfer_has_arrived_when_it_returns_however_long_the_device_takes(stub_cuda, context, memory):
    host, pool = memory
    stub_cuda.set("COPY_US", 3000)
    dma(context, host, pool).transfer(1, 2)
    assert (pool[2] == host[1]).all()
    assert stub_cuda.calls("cuEventQuery") > 6, "it asked before the end, and believed the answer"


def test_it_may_work_while_another_thread_captures_a_graph(stub_cuda, context, memory):
    host, pool = memory
    link = dma(context, host, pool)
    stub_cuda.set("CAPTURING", 1)
    link.transfer(1, 2)
    assert (pool[2] == host[1]).all()


def test_all_is_given_back_and_a_link_outlives_its_context_object(stub_cuda, memory):
    host, pool = memory
    link = dma(CudaContext(CudaDriver(stub_cuda.cuda)), host, pool)
    gc.collect()
    link.transfer(1, 2)
    assert (pool[2] == host[1]).all()
    assert stub_cuda.open_handles == 4
    del link
    assert stub_cuda.open_handles == 0


@pytest.mark.parametrize("call", ["cuStreamCreate=2", "cuEventCreate=2", "cuEventCreate=2@2", "cuCtxPushCurrent_v2=2"])
def test_a_link_that_cannot_be_made_leaves_nothing(stub_cuda, context, memory, call):
    stub_cuda.fail(call)
    with pytest.raises(CudaError, match=call.partition("=")[0]):
        dma(context, *memory)
    assert stub_cuda.open_handles == 1, "the context"


TRANSFERRING = ("cuCtxPushCurrent_v2", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventQuery")


@pytest.mark.parametrize("call", TRANSFERRING)
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_call_that_fails_is_named_and_nothing_moves_afterwards(stub_cuda, context, memory, call, number):
    host, pool = memory
    link = dma(context, host, pool)
    stub_cuda.set("COPY_US", 200)
    stub_cuda.fail(f"{call}=700@{number}")
    if call == "cuCtxPushCurrent_v2":
        for _ in range(number - 1):
            link.transfer(0, 0)
    with pytest.raises(CudaError, match=f"{call}: CUDA_ERROR_ILLEGAL_ADDRESS"):
        link.transfer(1, 2)
    after = pool.copy()
    stub_cuda.fail()
    if call != "cuEventQuery":  # one that cannot be asked cannot be waited for
        link.transfer(0, 3)
        after[3] = host[0]
        assert (pool == after).all()
    assert link.transfers == (number - 1) * (call == "cuCtxPushCurrent_v2") + (call != "cuEventQuery")


@pytest.mark.parametrize("call", TRANSFERRING)
def test_a_worker_whose_link_fails_says_so_and_keeps_no_slot(stub_cuda, context, call):
    with case_over(context) as case:
        stub_cuda.fail(f"{call}=700")
        case.device.lend(3)
        case.device.dispatch([(9, 9, 0.5)])
        with pytest.raises(CudaError, match=call):
            case.wait_for(lambda: False)
        case.worker.stop()
        assert case.control.words[FAILED] == 1 and case.landings() == 3
        case.check_account()


def test_a_decode_over_the_copy_engine(stub_cuda, context):
    stub_cuda.set("COPY_US", 30)
    with case_over(context, slots=12) as case:
        drive(case, np.random.default_rng(0), 100, 3, 4, 20)
        assert case.check_account()["landed"] > 50


def miss_at_the_first_copy(stub_cuda, case):
    """The device begins to copy misses when the worker has begun its first piece."""
    stub_cuda.set("MARK", case.control.words[MISSES_BEGUN:].ctypes.data)


def test_no_further_piece_is_begun_while_misses_are_copied(stub_cuda, context):
    with case_over(context, width=80) as case:  # 8 + 3 pieces
        miss_at_the_first_copy(stub_cuda, case)
        case.device.lend(1)
        case.device.dispatch([(9, 9, 0.5)])
        case.wait_for(lambda: case.control.words[MISSES_BEGUN])
        time.sleep(0.1)
        assert stub_cuda.calls("cuMemcpyHtoDAsync_v2") == 1
        case.control.words[MISSES_DONE] = 1
        case.wait_for_landings(1)
        assert (case.device.land()[0][2], stub_cuda.calls("cuMemcpyHtoDAsync_v2")) == (9, 11)
        case.device.check_bytes()


def test_stop_in_the_middle_of_a_transfer_ends_it_and_no_byte_moves_afterwards(stub_cuda, context):
    stub_cuda.set("COPY_US", 5000)
    with case_over(context, width=8000) as case:  # 1000 pieces: 5 s
        case.device.lend(2)
        case.device.dispatch([(9, 9, 0.5)])
        case.wait_for(lambda: stub_cuda.calls("cuMemcpyHtoDAsync_v2") > 3)
        case.worker.stop()
        pool, begun = case.pool.copy(), stub_cuda.calls("cuMemcpyHtoDAsync_v2")
        assert begun < 900
        assert [key for _, _, key in case.device.land()] == [-1, -1]
        stub_cuda.set("COPY_US", 1)
        case.link.transfer(0, 7)
        pool[7] = case.host[0]
        assert (case.pool == pool).all()
        case.check_account()


@pytest.mark.parametrize("missing", [False, True])
def test_a_device_that_does_not_finish_is_given_up_and_said(stub_cuda, context, missing):
    stub_cuda.set("COPY_US", 10**9)
    with case_over(context) as case:
        if missing:
            miss_at_the_first_copy(stub_cuda, case)
        case.device.lend(1)
        case.device.dispatch([(9, 9, 0.5)])
        case.wait_for(lambda: stub_cuda.calls("cuMemcpyHtoDAsync_v2"))
        case.worker.stop()
        with pytest.raises(RuntimeError, match="does not end"):
            case.worker.check()
        assert case.control.words[FAILED] == 1


def test_wrong_arguments_are_refused(context, memory):
    host, pool = memory
    good = np.array([[host.ctypes.data]], dtype=np.int64)
    target = (pool.ctypes.data, 320, 320)
    with pytest.raises(IndexError, match="key 1"):
        DmaLink(context, good, [target]).transfer(1, 0)
    with pytest.raises(IndexError, match="key -1"):
        DmaLink(context, good, [target]).transfer(-1, 0)
    for sources, targets, piece, reason in (
        (good, [target, target], 1, "as many pieces"),
        (good * 0, [target], 1, "host addresses"),
        (good[:0], [target], 1, "host addresses"),
        (good, [(0, 320, 320)], 1, "device address"),
        (good, [(1, 320, 321)], 1, "device address"),
        (good, [target], 0, "piece_bytes"),
    ):
        with pytest.raises(ValueError, match=reason):
            DmaLink(context, sources, targets, piece_bytes=piece)
