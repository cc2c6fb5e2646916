"""Where a cell runs: on the GPU only if the host has one, the lane is measured, and the system's build can use it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from seqmoe.harness.environments import installed_profile
from seqmoe.spec.baseline import Baseline, find_baseline, load_baselines
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell
from seqmoe.spec.system import SYSTEMS

CPU, GPU = "cpu", "cuda"
# Of a sweep's environment: where our own systems' measured cells run, if not on the CPU.
OWN_DEVICE = "own_device"


class Devices:
    """Answers for the cells of one host; ``environment`` is its fingerprint."""

    def __init__(self, home: Home, environment: Mapping[str, Any]) -> None:
        self._home = home
        self._own: str = environment.get(OWN_DEVICE, CPU)
        self._has_gpu = bool(environment["gpus"])
        self._baselines = load_baselines(home.baselines)

    def of(self, cell: Cell) -> str:
        """``cpu`` or ``cuda``. Our own runtime drives the CPU, unless it was told otherwise, whatever the host has."""
        if cell.lane == "measured" and cell.system in SYSTEMS:
            return self._own
        if not self._has_gpu or cell.lane != "measured":
            return CPU
        baseline = find_baseline(self._baselines, cell.system)
        if self.needs_other_build(baseline):
            return CPU
        model = load_model(self._home, cell.model)
        refusals = {d: baseline.supports(model.family, model.format, d, cell.residency) for d in (GPU, CPU)}
        return CPU if refusals[GPU] is not None and refusals[CPU] is None else GPU

    def never_here(self, baseline: Baseline, profile: str) -> bool:
        """Whether the build of that profile could run nothing here, whatever the model, by its capability matrix."""
        builds = len(set(baseline.requirements.values()))
        usable = (CPU, GPU) if self._has_gpu and (builds == 1 or profile == "full") else (CPU,)
        cases = itertools.product(
            {family for row in baseline.capability for family in row.families},
            {form for row in baseline.capability for form in row.formats},
            usable,
        )
        return all(baseline.supports(*case, residency=1.0) is not None for case in cases)

    def needs_other_build(self, baseline: Baseline) -> bool:
        """Whether the host has a GPU that the installed build cannot use: of two builds, quick is the CPU's."""
        two_builds = baseline.requirements["quick"] != baseline.requirements["full"]
        return self._has_gpu and two_builds and installed_profile(baseline, self._home) == "quick"
