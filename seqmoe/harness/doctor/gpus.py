"""A GPU as the doctor sees it: driver, link as negotiated, bandwidth, the paper's nearest machine, models that fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqmoe.core.driver import Bandwidth, CudaError, CudaMissingError, Gpu, Gpus, measure_bandwidth
from seqmoe.core.mapped_memory import pinned_limits
from seqmoe.runtime.available_memory import available_memory
from seqmoe.spec.fitting import Fit, fit
from seqmoe.spec.hardware import HardwareProfile, load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home

# Another GPU although the rest of the name is the same.
_OTHERS = {"laptop", "mobile", "max", "ti", "super", "d"}


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU. Memory in GiB, rates in GB/s; None where nobody tells.

    ``pcie`` and ``pcie_most`` are generation and lanes, as negotiated and at most. ``bandwidth_note`` says why there is
    no rate. ``profile`` is the nearest of suites/hardware, ``same`` whether it is this very GPU.
    """

    index: int
    name: str
    memory_gib: float
    compute_capability: str
    cuda: str
    driver: str | None
    pcie: tuple[int, int] | None
    pcie_most: tuple[int, int] | None
    reads_host_memory: bool
    link_idle: float | None
    link_contended: float | None
    bandwidth_note: str
    profile: str
    same: bool
    models: tuple[Fit, ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    """How much host memory can be pinned, in GiB: what is available, and the limit on locked memory (None: no limit).

    Programs that lock memory are held to the limit; the CUDA driver, which pins pages itself, only in some containers.
    """

    available_gib: float
    source: str
    memlock_gib: float | None


def pinned() -> Pinned:
    """Of this process, as it is now."""
    available, locked = available_memory(), pinned_limits().locked
    limit = None if locked is None else round(locked / 2**30, 3)
    return Pinned(round(available.bytes / 2**30, 1), available.source, limit)


def bandwidth_of(gpu: Gpu) -> Bandwidth | str:
    """Measured, in a second or two; or why it could not be."""
    try:
        return measure_bandwidth(gpu.index)
    except (CudaError, CudaMissingError) as error:
        return str(error)


def gpu_state(home: Home, gpus: Gpus, gpu: Gpu, bandwidth: Bandwidth | str, host_bytes: int) -> GpuState:
    """Put together what the driver says, what was measured, and what suites/ declares."""
    measured = bandwidth if isinstance(bandwidth, Bandwidth) else None
    # A link that rests is slower than what it negotiates when it is used.
    link = measured.pcie if measured is not None and measured.pcie is not None else gpu.pcie
    profile, same = nearest_profile(home, gpu, measured.idle / 1e9 if measured is not None else None)
    models = [load_model(home, path.stem) for path in sorted((home.suites / "models").glob("*.toml"))]
    return GpuState(
        index=gpu.index,
        name=gpu.name,
        memory_gib=round(gpu.memory_bytes / 2**30, 1),
        compute_capability=".".join(map(str, gpu.compute_capability)),
        cuda=".".join(map(str, gpus.cuda_version)),
        driver=gpus.driver_version,
        pcie=None if link is None else (link.generation, link.width),
        pcie_most=None if link is None else (link.max_generation, link.max_width),
        reads_host_memory=gpu.maps_host_memory,
        link_idle=None if measured is None else round(measured.idle / 1e9, 2),
        link_contended=None if measured is None else round(measured.contended / 1e9, 2),
        bandwidth_note="" if measured is not None else str(bandwidth),
        profile=profile.name,
        same=same,
        models=tuple(fit(model, gpu.memory_bytes, host_bytes) for model in models),
    )


def nearest_profile(home: Home, gpu: Gpu, link_idle: float | None) -> tuple[HardwareProfile, bool]:
    """The hardware profile of that GPU, and True; else the nearest in memory and link rate (GB/s), and False.

    Distances are ratios, memory and link counting alike. A profile of a host without a GPU launches no kernels there,
    and is passed over.
    """
    profiles = [load_hardware(home, path.stem) for path in sorted((home.suites / "hardware").glob("*.toml"))]
    profiles = [profile for profile in profiles if profile.rates is None or profile.rates.graph_kernel > 0]
    words = _words(gpu.name)
    for profile in profiles:
        title = _words(profile.title.split(",")[0])
        if title <= words and not (words - title) & _OTHERS:
            return profile, True
    rate = link_idle or (gpu.pcie.bytes_per_second / 1e9 if gpu.pcie is not None else None)

    def distance(profile: HardwareProfile) -> float:
        memory = abs(math.log(gpu.memory_bytes / 2**30 / profile.memory))
        return memory + (abs(math.log(rate / profile.link_sustained)) if rate else 0.0)

    return min(profiles, key=distance), False


def _words(name: str) -> set[str]:
    return set(name.lower().replace("-", " ").split())
