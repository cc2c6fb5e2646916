"""The whole examination: machine, lanes, suites, baselines and GPUs. Nothing is started, fetched or written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqmoe.core.driver import Bandwidth, Gpu, Gpus, NoGpu, probe
from seqmoe.harness.doctor.gpus import GpuState, Pinned, bandwidth_of, gpu_state, pinned
from seqmoe.harness.doctor.lanes import BaselineState, LaneState, lane_states
from seqmoe.harness.doctor.suites import SuiteState, suite_states
from seqmoe.harness.fingerprint import fingerprint
from seqmoe.harness.overview import overview
from seqmoe.harness.self_test import self_test
from seqmoe.runtime.available_memory import available_memory
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. ``machine`` is the fingerprint that records would carry; ``no_gpu`` why there is none, if so."""

    machine: dict[str, Any]
    pinned: Pinned
    no_gpu: str
    gpus: tuple[GpuState, ...]
    lanes: tuple[LaneState, ...]
    suites: tuple[SuiteState, ...]
    baselines: tuple[BaselineState, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def examine(
    home: Home,
    found: Gpus | NoGpu | None = None,
    measure: Callable[[Gpu], Bandwidth | str] | None = None,
) -> Examination:
    """Look at this machine; with a GPU, ``measure`` (`bandwidth_of`) copies to it for a second or two.

    ``found`` is what the driver tells, by default what `seqmoe.core.driver.probe` does.
    """
    told = probe() if found is None else found
    environment = _environment(home, told)
    baselines = tuple(_baselines(home))
    host_bytes = available_memory().bytes
    gpus = (
        tuple(gpu_state(home, told, gpu, (measure or bandwidth_of)(gpu), host_bytes) for gpu in told.devices)
        if isinstance(told, Gpus)
        else ()
    )
    return Examination(
        machine=environment,
        pinned=pinned(),
        no_gpu=told.reason if isinstance(told, NoGpu) else "",
        gpus=gpus,
        lanes=tuple(lane_states(home, told, baselines)),
        suites=tuple(suite_states(home, environment)),
        baselines=baselines,
    )


def _environment(home: Home, told: Gpus | NoGpu) -> dict[str, Any]:
    """The fingerprint; where nvidia-smi tells of no GPU, those that the driver names."""
    environment = fingerprint(home) | {"threads": 1}
    if isinstance(told, Gpus) and not environment["gpus"]:
        environment["gpus"] = [{"name": gpu.name} for gpu in told.devices]
    return environment


def _baselines(home: Home) -> list[BaselineState]:
    states = []
    for baseline in load_baselines(home.baselines).values():
        found = self_test(baseline, home, run=False)
        seen = overview(baseline, home, found)
        states.append(BaselineState(baseline.key, baseline.session, found.status.ok, seen))
    return states
