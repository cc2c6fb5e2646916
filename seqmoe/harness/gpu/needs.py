"""Whether this machine can run the CUDA runtime, and what it needs if not, in one line."""

from __future__ import annotations

import importlib.metadata
import re

from seqmoe.core.driver import Gpu, Gpus, NoGpu

CAPABILITY = (8, 0)
NEEDS = (
    "nox -s gpu needs an NVIDIA GPU of compute capability 8.0 or newer that reads host memory in place, its driver, a "
    "CUDA build of PyTorch, and 45 GB of free host memory for the sizes of Qwen3-30B-A3B"
)


def first_usable(found: Gpus | NoGpu) -> Gpu | str:
    """The GPU to use: the first, as PyTorch counts them; or why there is none, with what is needed."""
    if isinstance(found, NoGpu):
        return f"{NEEDS}; here: {found.reason}"
    gpu = found.devices[0]
    if gpu.compute_capability < CAPABILITY:
        had = ".".join(map(str, gpu.compute_capability))
        return f"{NEEDS}; here: {gpu.name} has compute capability {had}"
    if not gpu.maps_host_memory:
        return f"{NEEDS}; here: {gpu.name} does not read host memory in place"
    missing = missing_packages()
    return f"{NEEDS}; here: {missing}" if missing else gpu


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
