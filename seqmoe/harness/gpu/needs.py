"""Whether this machine can run the CUDA runtime, and what it lacks if not, in a line."""

from __future__ import annotations

import importlib.metadata
import re

from seqmoe.core.driver import Gpu, Gpus, NoGpu, probe
from seqmoe.harness.devices import CPU, GPU
from seqmoe.spec.errors import InputError, nearest

CAPABILITY = (8, 0)
NEEDS = (
    "an NVIDIA GPU of compute capability 8.0 or newer that reads host memory in place, its driver, and a CUDA build of "
    "PyTorch"
)


def check_device(device: str) -> None:
    """Raise `InputError` for a device on which our own systems cannot run here."""
    if device not in (CPU, GPU):
        raise InputError(f"--device {device!r} is unknown; {nearest(device, (CPU, GPU))}")
    if device == GPU and isinstance(missing := first_usable(probe()), str):
        raise InputError(f"--device {device}: needs {NEEDS}; here: {missing}")


def first_usable(found: Gpus | NoGpu) -> Gpu | str:
    """The GPU to use: the first, as PyTorch counts them; or why there is none."""
    if isinstance(found, NoGpu):
        return found.reason
    gpu = found.devices[0]
    if gpu.compute_capability < CAPABILITY:
        had = ".".join(map(str, gpu.compute_capability))
        return f"{gpu.name} has compute capability {had}"
    if not gpu.maps_host_memory:
        return f"{gpu.name} does not read host memory in place"
    return missing_packages() or gpu


def missing_packages() -> str:
    """What of PyTorch with CUDA and Triton is not installed, or an empty text."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "PyTorch is not installed"
    if re.search(r"\+cpu$", torch):
        return f"PyTorch {torch} is a build without CUDA"
    try:
        importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "Triton is not installed (pip install 'seqmoe[cuda]')"
    return ""
