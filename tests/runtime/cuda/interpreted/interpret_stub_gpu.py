"""Protects the GPU side of a device on a stub of the driver: pinned pools, the copy engine as link, full load's tokens.

The stub's device memory is the host's, so that interpreted kernels can read and write it.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from device_models import LENGTH, PROMPT, TOKENS, mamba2, tiny_checkpoint

from seqmoe.core.mapped_memory import PinningError
from seqmoe.runtime.cuda import device as module
from seqmoe.runtime.cuda.device import GpuDevice, HostDevice
from seqmoe.runtime.cuda.engine import CudaEngine
from seqmoe.runtime.cuda.loading import load_on
from seqmoe.spec.errors import OutOfMemoryError
from seqmoe.spec.system import system

_FILE = Path(__file__).parents[3] / "core" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("core_conftest", _FILE)
_CORE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _CORE  # as dataclasses look their module up
_SPEC.loader.exec_module(_CORE)
stub_libraries, stub_cuda = _CORE.stub_libraries, _CORE.stub_cuda


class StubGpu(GpuDevice):
    """A GPU whose tensors are a CPU's, and whose kernels find mapped memory where the host does."""

    captures = False

    def __init__(self, library: str) -> None:
        super().__init__(0, library)
        self.device = torch.device("cpu")

    def chunks(self, sizes):
        return [replace(chunk, address=chunk.host) for chunk in super().chunks(sizes)]

    def tensor(self, mapped):
        return mapped.chunk.bytes.view(torch.int64)


@pytest.fixture
def gpu(stub_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**34))
    return StubGpu(stub_cuda.cuda)


def test_a_decode_over_the_copy_engine_gives_full_loads_logits(gpu, stub_cuda, tmp_path) -> None:
    checkpoint = tiny_checkpoint("gpt_oss", tmp_path)
    plain = CudaEngine(load_on(checkpoint, HostDevice()), HostDevice())
    plain.place(replace(system("full"), execution="graph"), 1.0, length=LENGTH)
    (full,) = plain.generate([PROMPT], TOKENS, keep_logits=True)
    plain.close()
    engine = CudaEngine(load_on(checkpoint, gpu), gpu)
    engine.place(replace(system("seqmoe"), execution="graph"), 0.45, mamba2(engine.geometry), length=LENGTH)
    (result,) = engine.generate([PROMPT], TOKENS, keep_logits=True)
    counts = engine.placement.statistics()
    engine.close()
    assert torch.equal(torch.stack(result.logits), torch.stack(full.logits))
    assert counts["landed"] > 0 and stub_cuda.calls("cuMemcpyHtoDAsync_v2") >= counts["worker_landed"]
    # A piece for each layer's each part, and the control region.
    assert stub_cuda.calls("cuMemHostAlloc") >= 2 * 4 + 1


def test_mapped_memory_is_given_to_pytorch_at_the_devices_address(gpu, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(module.torch, "as_tensor", lambda data, device: seen.append((data, device)))
    (chunk,) = GpuDevice.chunks(gpu, [64])
    GpuDevice.tensor(gpu, module._Mapped(chunk, 8))
    ((data, _),) = seen
    assert data.__cuda_array_interface__ == {
        "shape": (8,), "typestr": "<i8", "data": (chunk.address, False), "version": 2,
    }  # fmt: skip
    assert chunk.address != chunk.host


def test_what_does_not_fit_is_said_with_the_sum_or_the_limit(gpu, stub_cuda) -> None:
    gpu.check_room({"slots": 2**30})
    with pytest.raises(OutOfMemoryError, match=r"device memory: slots 2\.00 GiB .* but 1\.00 GiB are free"):
        gpu.check_room({"slots": 2**31})
    stub_cuda.fail("cuMemHostAlloc=2")
    with pytest.raises(PinningError, match="could be pinned"):
        gpu.chunks([4096])
