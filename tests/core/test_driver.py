"""Protects what is said of GPUs: the driver's own answers, a reason for every failing call, nothing left open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqmoe.core.driver import CudaContext, CudaDriver, CudaError, Gpus, NoGpu, measure_bandwidth, probe
from seqmoe.core.pcie import PcieLink, pcie_link

NOWHERE = "libseqmoe-no-such-library.so"
DESCRIBING = ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
              "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDeviceGetPCIBusId")  # fmt: skip
MEASURING = ("cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemHostAlloc", "cuMemAlloc_v2", "cuStreamCreate",
             "cuEventCreate", "cuEventRecord", "cuEventElapsedTime", "cuMemcpyHtoDAsync_v2",
             "cuStreamSynchronize")  # fmt: skip
ONCE = ("cuDevicePrimaryCtxRetain", "cuMemHostAlloc")
GIVING_BACK = ("cuDevicePrimaryCtxRelease_v2", "cuCtxPopCurrent_v2", "cuMemFreeHost", "cuMemFree_v2",
               "cuStreamDestroy_v2", "cuEventDestroy_v2", "cuThreadExchangeStreamCaptureMode")  # fmt: skip


def test_without_a_driver_the_reason_names_the_library():
    found = probe(NOWHERE)
    assert isinstance(found, NoGpu)
    assert NOWHERE in found.reason


def test_the_driver_is_described(stub_cuda):
    stub_cuda.set("DEVICES", 2)
    found = probe(stub_cuda.cuda, stub_cuda.nvml)
    assert isinstance(found, Gpus)
    assert found.cuda_version == (13, 1) and found.driver_version == "580.65.06"
    first, second = found.devices
    assert (first.index, first.name, first.pci_bus_id) == (0, "Stub 0", "0000:01:00.0")
    assert first.memory_bytes == 24 << 30 and first.compute_capability == (8, 9)
    assert (first.multiprocessors, first.copy_engines) == (128, 2)
    assert first.maps_host_memory and not first.host_atomics
    assert first.pcie == PcieLink(1, 8, 4, 16)
    assert (second.index, second.name, second.pcie) == (1, "Stub 1", None)
    assert stub_cuda.open_handles == 0 and stub_cuda.calls("cuDevicePrimaryCtxRetain") == 0


def test_the_driver_is_found_where_the_loader_looks(stub_libraries):
    script = "from seqmoe.core.driver import probe; found = probe(); print(found.devices[0].name, found.driver_version)"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(stub_libraries["cuda"]).parent)}
    child = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert child.stdout == "Stub 0 580.65.06\n"


@pytest.mark.parametrize("call", DESCRIBING)
def test_a_call_that_fails_is_the_reason(stub_cuda, call):
    stub_cuda.fail(f"{call}=100")
    found = probe(stub_cuda.cuda, stub_cuda.nvml)
    assert isinstance(found, NoGpu)
    assert call in found.reason and "CUDA_ERROR_NO_DEVICE (100)" in found.reason and "nvidia-smi" in found.reason


def test_a_driver_without_devices_and_one_too_old(stub_cuda):
    stub_cuda.set("DEVICES", 0)
    assert "no device" in probe(stub_cuda.cuda).reason
    assert "cuDeviceGetCount" in probe(stub_cuda.old).reason
    assert "update" in probe(stub_cuda.old).reason


def test_an_error_says_what_why_and_an_unnamed_one_its_number(stub_cuda):
    driver = CudaDriver(stub_cuda.cuda)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_DEVICE") as caught:
        CudaContext(driver, 7)
    assert (caught.value.call, caught.value.name, caught.value.code) == (
        "cuDeviceGet", "CUDA_ERROR_INVALID_DEVICE", 101,
    )  # fmt: skip
    stub_cuda.fail("cuDriverGetVersion=12345")
    with pytest.raises(RuntimeError, match=r"cuDriverGetVersion: CUresult 12345 \(12345\)"):
        _ = driver.version


def test_bandwidth_is_measured_and_leaves_nothing(stub_cuda):
    stub_cuda.set("COPY_US", 50)
    bandwidth = measure_bandwidth(0, 1 << 16, 3, stub_cuda.cuda, stub_cuda.nvml)
    assert 0 < bandwidth.idle <= (1 << 16) / 50e-6
    assert bandwidth.contended > 0
    assert bandwidth.pcie == PcieLink(1, 8, 4, 16)
    assert stub_cuda.calls("cuMemcpyHtoDAsync_v2") == 4 + 8
    assert stub_cuda.open_handles == 0


@pytest.mark.parametrize(
    ("call", "number"), [(call, 1) for call in MEASURING] + [(call, 2) for call in MEASURING if call not in ONCE]
)
def test_a_measurement_that_fails_says_where_and_leaves_nothing(stub_cuda, call, number):
    stub_cuda.fail(f"{call}=2@{number}")
    with pytest.raises(CudaError, match=f"{call}: CUDA_ERROR_OUT_OF_MEMORY"):
        measure_bandwidth(0, 1 << 10, 2, stub_cuda.cuda, stub_cuda.nvml)
    assert stub_cuda.open_handles == 0


@pytest.mark.parametrize("call", GIVING_BACK)
def test_what_cannot_be_given_back_ends_nothing(stub_cuda, call):
    stub_cuda.fail(f"{call}=700")
    assert measure_bandwidth(0, 1 << 10, 2, stub_cuda.cuda, stub_cuda.nvml).idle > 0


@pytest.mark.parametrize(("argument", "value"), [("bytes", 0), ("rounds", 0)])
def test_nothing_to_measure_is_refused(stub_cuda, argument, value):
    with pytest.raises(ValueError, match=argument):
        measure_bandwidth(library=stub_cuda.cuda, **{"bytes": 8, "rounds": 1, argument: value})


def test_the_link_is_read_from_the_kernels_files(tmp_path):
    device = tmp_path / "0000:0a:00.0"
    device.mkdir()
    assert pcie_link("0000:0A:00.0", NOWHERE, tmp_path) is None
    for name, text in (("current_link_speed", "16.0 GT/s PCIe"), ("max_link_speed", "32.0 GT/s PCIe"),
                       ("current_link_width", "8"), ("max_link_width", "16")):  # fmt: skip
        (device / name).write_text(text + "\n")
    link = pcie_link("0000:0A:00.0", NOWHERE, tmp_path)
    assert link == PcieLink(4, 8, 5, 16)
    assert link.bytes_per_second == pytest.approx(15.754e9, rel=1e-4)
    (device / "current_link_speed").write_text("Unknown\n")
    assert pcie_link("0000:0A:00.0", NOWHERE, tmp_path) is None


@pytest.mark.parametrize(
    "call",
    ["nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetCurrPcieLinkGeneration",
     "nvmlDeviceGetMaxPcieLinkWidth"],
)  # fmt: skip
def test_a_management_library_that_fails_tells_no_link(stub_cuda, tmp_path, call):
    stub_cuda.fail(f"{call}=9")
    assert pcie_link("0000:01:00.0", stub_cuda.nvml, tmp_path) is None


def test_a_version_that_cannot_be_asked_is_unknown(stub_cuda):
    stub_cuda.fail("nvmlSystemGetDriverVersion=9")
    assert probe(stub_cuda.cuda, stub_cuda.nvml).driver_version is None
    assert probe(stub_cuda.cuda, NOWHERE).driver_version is None
