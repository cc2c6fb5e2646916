"""What a machine computes and moves per second: the part of a hardware profile that the simulator reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one accelerator and its host. ``sources`` says where each value comes from.

    Bandwidths are in GB/s (1e9 bytes per second): ``memory`` is the accelerator's, ``cache`` its last-level cache's,
    ``cpu_memory`` the host's. *Peak* is the data sheet's, *sustained* what long kernels reach. ``compute`` is dense
    bf16 in TFLOP/s, ``cache_size`` in MiB, ``cpu_threads`` what the host lets a program use. Times are in seconds:
    ``dispatch`` is what the host spends to launch one kernel of an eager program, ``graph_kernel`` the pause between
    two kernels of a graph, ``host_sync`` a wait of the host for the device. A machine without an accelerator computes
    on the CPU and has no kernels to launch: those times are 0.
    """

    memory_peak: float
    memory_sustained: float
    compute_peak: float
    compute_sustained: float
    cache_size: float
    cache_bandwidth: float
    cpu_memory_peak: float
    cpu_memory_sustained: float
    cpu_threads: int
    dispatch: float
    graph_kernel: float
    host_sync: float
    sources: dict[str, str]

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name == "sources":
                continue
            value = getattr(self, field.name)
            may_be_zero = field.name in ("dispatch", "graph_kernel", "host_sync")
            if not (value > 0 or (value == 0 and may_be_zero)) or not math.isfinite(value):
                least = "0 or more" if may_be_zero else "positive"
                raise ValueError(f"{field.name} = {value}: must be {least} and finite")
            if not self.sources.get(field.name):
                raise ValueError(f"sources: {field.name} has no source")
        for name in ("memory", "compute", "cpu_memory"):
            peak, sustained = getattr(self, f"{name}_peak"), getattr(self, f"{name}_sustained")
            if sustained > peak:
                raise ValueError(f"{name}_sustained = {sustained}: above {name}_peak = {peak}")
