"""Protects pinned memory: zeroed, seen alike by both sides or refused with the reason, given back once."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.core.driver import CudaContext, CudaDriver, CudaError
from seqmoe.core.mapped_memory import PinningError, map_memory, pinned_limits

SIZES = [100, 4096, 10_000]


@pytest.fixture
def context(stub_cuda):
    return CudaContext(CudaDriver(stub_cuda.cuda))


def test_chunks_are_zero_and_have_an_address_on_each_side(context):
    memory = map_memory(context, SIZES)
    assert memory.sizes == SIZES
    for index, size in enumerate(SIZES):
        chunk = memory.bytes(index)
        assert chunk.shape == (size,) and not chunk.any()
        assert chunk.ctypes.data == memory.host[index] != memory.device[index]
    with pytest.raises(IndexError, match="chunk 3 of 3"):
        memory.bytes(3)


def test_memory_lives_as_long_as_a_view_and_is_then_given_back(stub_cuda):
    memory = map_memory(CudaContext(CudaDriver(stub_cuda.cuda)), SIZES)
    view = memory.bytes(1)[10:20]
    del memory
    view[:] = 7
    assert stub_cuda.open_handles == len(SIZES) + 1
    del view
    assert stub_cuda.open_handles == 0


def test_looking_again_leaves_what_is_there(context):
    memory = map_memory(context, SIZES)
    wanted = np.random.default_rng(0).integers(0, 256, SIZES[2]).astype(np.uint8)
    memory.bytes(2)[:] = wanted
    assert memory.first_unfaithful() is None
    assert (memory.bytes(2) == wanted).all()


@pytest.mark.parametrize("dropped", ["htod", "dtod", "dtoh"])
def test_a_system_that_drops_copies_is_found_out(stub_cuda, context, dropped):
    memory = map_memory(context, SIZES)
    stub_cuda.set("DROP", dropped)
    memory.bytes(0)[:] = 9
    assert memory.first_unfaithful() == 0
    assert (memory.bytes(0) == 9).all()
    with pytest.raises(PinningError, match=r"chunk 0 of 3.*WSL2"):
        map_memory(context, SIZES)


@pytest.mark.parametrize(("number", "pinned"), [(1, 0), (3, 4196)])
def test_what_cannot_be_pinned_is_said_with_the_limits(stub_cuda, context, number, pinned):
    stub_cuda.fail(f"cuMemHostAlloc=2@{number}")
    with pytest.raises(PinningError, match=r"CUDA_ERROR_OUT_OF_MEMORY.*ulimit -l") as caught:
        map_memory(context, SIZES)
    assert (caught.value.pinned, caught.value.call, caught.value.code) == (pinned, "cuMemHostAlloc", 2)
    assert stub_cuda.open_handles == 1, "only the context is left"


CALLS = ("cuMemHostGetDevicePointer_v2", "cuMemAlloc_v2", "cuStreamCreate", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2",
         "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuCtxPushCurrent_v2")  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_is_named_and_leaves_nothing(stub_cuda, context, call):
    stub_cuda.fail(f"{call}=700")
    with pytest.raises(CudaError, match=f"{call}: CUDA_ERROR_ILLEGAL_ADDRESS"):
        map_memory(context, SIZES)
    assert stub_cuda.open_handles == 1


def test_an_empty_chunk_is_refused(stub_cuda, context):
    with pytest.raises(ValueError, match="byte"):
        map_memory(context, [8, 0])
    assert stub_cuda.open_handles == 1


def test_limits_are_read_and_windows_is_known(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       32000000 kB\nMemAvailable:   16777216 kB\nHugePages_Total: 0\n")
    (tmp_path / "version").write_text("Linux version 6.6.87.2-microsoft-standard-WSL2\n")
    limits = pinned_limits(tmp_path)
    assert (limits.available, limits.total, limits.wsl) == (16 << 30, 32_000_000 * 1024, True)
    assert "16.0 GiB" in str(limits) and ".wslconfig" in str(limits)
    elsewhere = pinned_limits(tmp_path / "nowhere")
    assert (elsewhere.available, elsewhere.total, elsewhere.wsl) == (None, None, False)
    assert "WSL" not in str(elsewhere)
