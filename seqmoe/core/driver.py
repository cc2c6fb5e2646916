"""The CUDA driver: which GPUs there are, how fast their link is, and memory that both sides see.

``libcuda.so.1`` is opened when a function here is called, never at import, and no CUDA toolkit is needed. A call that
fails raises ``CudaError``, whose ``call``, ``name`` (of the CUresult) and ``code`` say what and why, and whose message
says what to do; without a driver it is ``CudaMissingError``. Both are ``RuntimeError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqmoe.core._native import CudaContext, CudaDriver, CudaError, CudaMissingError
from seqmoe.core._native import measure_bandwidth as _measure_bandwidth
from seqmoe.core.pcie import NVML, PcieLink, driver_version, pcie_link

__all__ = [
    "LIBRARY", "Bandwidth", "CudaContext", "CudaDriver", "CudaError", "CudaMissingError", "Gpu", "Gpus", "NoGpu",
    "PcieLink", "measure_bandwidth", "probe",
]  # fmt: skip

LIBRARY = "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as the driver describes it.

    ``maps_host_memory``: kernels can read pinned host memory in place, without which offloading is not possible here.
    ``host_atomics``: the link carries atomic operations (NVLink to the processor; not PCI Express). ``pcie`` is the
    link as it is now, resting perhaps; None where nobody tells.
    """

    index: int
    name: str
    pci_bus_id: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    multiprocessors: int
    copy_engines: int
    maps_host_memory: bool
    host_atomics: bool
    pcie: PcieLink | None


@dataclass(frozen=True, slots=True)
class Gpus:
    """A working driver, with at least one device. ``driver_version`` is the kernel driver's, None where unknown."""

    cuda_version: tuple[int, int]
    driver_version: str | None
    devices: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class NoGpu:
    """Why no GPU can be used, and what to do: one line for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second from pinned memory to the device.

    ``idle``: one stream alone; ``contended``: the same stream while another one copies the same way without a pause.
    ``pcie`` is the link right after, awake.
    """

    idle: float
    contended: float
    pcie: PcieLink | None


def probe(library: str = LIBRARY, nvml: str = NVML) -> Gpus | NoGpu:
    """``probe() -> Gpus | NoGpu``: the GPUs of this machine, or why there is none. Raises nothing, creates no context.

    ``library`` and ``nvml`` are the driver's library and its management library, names or paths.
    """
    try:
        driver = CudaDriver(library)
        version, devices = driver.version, driver.devices()
    except (CudaError, CudaMissingError) as error:
        return NoGpu(str(error))
    if not devices:
        return NoGpu("the CUDA driver shows no device: see nvidia-smi and CUDA_VISIBLE_DEVICES")
    return Gpus(version, driver_version(nvml), tuple(_gpu(device, nvml) for device in devices))


def measure_bandwidth(
    index: int = 0, bytes: int = 256 << 20, rounds: int = 8, library: str = LIBRARY, nvml: str = NVML
) -> Bandwidth:
    """Copy ``bytes`` of pinned memory to device ``index``, ``rounds`` times alone and as often beside another stream.

    Takes ``bytes`` of pinned memory and twice as much of the device's. Raises ``CudaError``, ``CudaMissingError``.
    """
    driver = CudaDriver(library)
    bus = {device["index"]: device["pci_bus_id"] for device in driver.devices()}
    idle, contended = _measure_bandwidth(CudaContext(driver, index), bytes, rounds)
    return Bandwidth(idle, contended, pcie_link(bus[index], nvml))


def _gpu(device: dict[str, Any], nvml: str) -> Gpu:
    return Gpu(**device, pcie=pcie_link(device["pci_bus_id"], nvml))
