"""This host's hardware profile, measured: its memory, its arithmetic, and the copies that are its link.

On a machine without a GPU the experts live in the same memory that computes, so the link is a copy within it.
"""

from __future__ import annotations

import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.core.moe import moe_experts
from seqmoe.spec.hardware import SCHEMA, HardwareProfile
from seqmoe.spec.rates import Rates

# Larger than last-level caches; what is read by one pass is not there for the next.
_BYTES = 512 * 2**20
# One expert of Qwen3-30B-A3B in float32, as many as fill the buffer, and a matrix that keeps the arithmetic busy.
_HIDDEN, _WIDTH, _SQUARE = 2048, 768, 1536
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class HostRates:
    """Best of some repeats, in GB/s and TFLOP/s; ``gemv_efficiency`` is the expert kernel's share of ``read``."""

    read: float
    copy: float
    copy_contended: float
    gemv: float
    compute: float

    @property
    def gemv_efficiency(self) -> float:
        """How much of the memory's bandwidth the expert kernel reaches."""
        return self.gemv / self.read


def measure(repeats: int = _REPEATS, size: int = _BYTES) -> HostRates:
    """Measure in this process, with the threads that it has; takes some seconds."""
    source = np.ones(size // 8, dtype=np.float64)
    target = np.empty_like(source)
    np.copyto(target, source)  # pages are there before the clock runs
    read = _rate(lambda: source.sum(), size, repeats)
    # A copy moves as many bytes as it is given: what its reads and writes take of the memory is its own affair.
    copy = _rate(lambda: np.copyto(target, source), size, repeats)
    kernel, kernel_bytes = _expert_kernel(size)
    gemv = _rate(kernel, kernel_bytes, repeats)
    with _beside(kernel):
        contended = _rate(lambda: np.copyto(target, source), size, repeats)
    square = np.ones((_SQUARE, _SQUARE), dtype=np.float32)
    operations = 2 * _SQUARE**3
    compute = _rate(lambda: square @ square, operations, repeats) / 1e3
    return HostRates(read, copy, min(contended, copy), min(gemv, read), compute)


def host_profile(name: str, found: HostRates, memory: float, threads: int) -> HardwareProfile:
    """The profile of a machine without a GPU, from what was measured; ``memory`` is in GiB."""
    how = "measured by seqmoe hardware calibrate"
    none = "no accelerator, so no kernels to launch"
    values: dict[str, tuple[float, str]] = {
        "memory_peak": (found.read, f"{how}: a read of memory; the data sheet is not known to the program"),
        "memory_sustained": (found.gemv, f"{how}: the expert kernel, {found.gemv_efficiency:.0%} of a plain read"),
        "compute_peak": (found.compute, f"{how}: float32 matrix product"),
        "compute_sustained": (found.compute, f"{how}: float32 matrix product"),
        "cache_size": (cache_mib(), "the largest cache that the system tells of"),
        "cache_bandwidth": (found.read, "as memory: not measured"),
        "cpu_memory_peak": (found.read, f"{how}: a read of memory"),
        "cpu_memory_sustained": (found.gemv, f"{how}: the expert kernel"),
        "cpu_threads": (threads, f"{how}: threads of this run"),
        "dispatch": (0.0, none),
        "graph_kernel": (0.0, none),
        "host_sync": (0.0, none),
    }
    numbers = {key: int(value) if key == "cpu_threads" else _short(value) for key, (value, _) in values.items()}
    rates = Rates(**numbers, sources={key: source for key, (_, source) in values.items()})  # type: ignore[arg-type]
    link = {"peak": "idle", "sustained": "idle", "contended": "while the expert kernel runs"}
    sources = {f"link_{key}": f"{how}: copy in memory, {when}" for key, when in link.items()}
    return HardwareProfile(
        schema=SCHEMA,
        name=name,
        title=f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}, no GPU",
        memory=memory,
        link_peak=_short(found.copy),
        link_sustained=_short(found.copy),
        link_contended=_short(found.copy_contended),
        sources={"memory": "the system's own count", **sources},
        rates=rates,
    )


def profile_toml(profile: HardwareProfile) -> str:
    """The profile as a file of suites/hardware."""
    table = {key: value for key, value in asdict(profile).items() if value not in (None, "", {})}
    rates = table.pop("rates", None)
    sections = {"sources": table.pop("sources")}
    if rates is not None:
        sections |= {"rates": {k: v for k, v in rates.items() if k != "sources"}, "rates.sources": rates["sources"]}
    lines = [_line(key, value) for key, value in table.items()]
    for title, section in sections.items():
        lines += ["", f"[{title}]", *(_line(key, value) for key, value in section.items())]
    return "\n".join(lines) + "\n"


def cache_mib() -> float:
    """The largest cache of the first core in MiB, 1 where the system does not tell."""
    sizes = [1.0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        found = re.fullmatch(r"(\d+)([KM])", path.read_text().strip())
        if found:
            sizes.append(int(found[1]) / (1024 if found[2] == "K" else 1))
    return max(sizes)


def _expert_kernel(size: int) -> tuple[Callable[[], None], int]:
    """The decode kernel over as many experts as ``size`` holds, each once, and the bytes of weights that it reads."""
    expert = 3 * _HIDDEN * _WIDTH * 4
    count = max(size // expert, 1)
    gate_up = np.zeros((count, 2 * _WIDTH, _HIDDEN), dtype=np.float32)
    down = np.zeros((count, _HIDDEN, _WIDTH), dtype=np.float32)
    x = np.ones((1, _HIDDEN), dtype=np.float32)
    slots = np.arange(count, dtype=np.int32)[None]
    weights = np.ones((1, count), dtype=np.float32)
    contribution = np.empty((1, count, _HIDDEN), dtype=np.float32)
    gate_up += 1  # zero pages would all be the same one
    down += 1

    def run() -> None:
        moe_experts(x, gate_up, down, slots, weights, contribution)

    run()
    return run, count * expert


def _rate(work: Callable[[], Any], amount: float, repeats: int) -> float:
    """Billions a second of the fastest repeat: others were disturbed."""
    best = min(_seconds(work) for _ in range(repeats))
    return amount / best / 1e9


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    """Run ``work`` again and again in another thread meanwhile."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _line(key: str, value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return f"{key} = {text}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
