"""A CUDA driver for machines that have none, built once a session from stub_cuda/."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "stub_cuda"


def build(source: str, target: Path) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        pytest.skip("the stub of the CUDA driver needs a C++ compiler")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", str(SOURCES / source), "-o", str(target)], check=True)
    return target


@dataclass(frozen=True)
class StubCuda:
    """The stub in this process: ``cuda`` and ``nvml`` are its libraries' paths, ``old`` lacks some functions."""

    cuda: str
    nvml: str
    old: str
    monkeypatch: pytest.MonkeyPatch
    native: ctypes.CDLL = field(init=False, repr=False)
    open_before: int = field(init=False, default=0)

    def __post_init__(self):
        object.__setattr__(self, "native", ctypes.CDLL(self.cuda))
        self.native.stub_reset()
        object.__setattr__(self, "open_before", self.open_handles)

    def fail(self, *calls: str):
        """Calls that fail from now on: "cuInit=100", or "cuMemHostAlloc=2@3" from the third one on."""
        self.native.stub_reset()
        self.monkeypatch.setenv("SEQMOE_STUB_FAIL", ",".join(calls))

    def set(self, name: str, value: object):
        self.monkeypatch.setenv(f"SEQMOE_STUB_{name}", str(value))

    def calls(self, name: str) -> int:
        return self.native.stub_calls(name.encode())

    @property
    def open_handles(self) -> int:
        """What the driver handed out in this test and did not get back."""
        gc.collect()  # an error's traceback holds some of it
        return self.native.stub_open_handles() - self.open_before


@pytest.fixture(scope="session")
def stub_libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stub_cuda")
    return {
        "cuda": str(build("stub_cuda.cpp", folder / "libcuda.so.1")),
        "nvml": str(build("stub_nvml.cpp", folder / "libnvidia-ml.so.1")),
        "old": str(build("stub_old.cpp", folder / "old" / "libcuda.so.1")),
    }


@pytest.fixture
def stub_cuda(stub_libraries, monkeypatch):
    for name in [name for name in os.environ if name.startswith("SEQMOE_STUB_")]:
        monkeypatch.delenv(name)
    gc.freeze()  # what is there is left alone: a collection in a test sees that test's own, and takes no time
    yield StubCuda(**stub_libraries, monkeypatch=monkeypatch)
    gc.unfreeze()
