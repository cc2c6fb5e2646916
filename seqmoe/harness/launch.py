"""Which worker serves a cell, how it is started, and what stands in the way, found out without starting anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from seqmoe.harness import simulated
from seqmoe.harness.devices import CPU, Devices
from seqmoe.harness.environments import environment_python, is_installed
from seqmoe.harness.models import checkpoint_folder
from seqmoe.harness.prompts import Unavailable, load_prompts
from seqmoe.harness.record import Status
from seqmoe.harness.replays import Replays
from seqmoe.runtime.available_memory import available_memory
from seqmoe.spec.baseline import Baseline, find_baseline, load_baselines
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import RANDOM, REPLAY, Cell
from seqmoe.spec.system import SYSTEMS


class Launcher(Protocol):
    """What an executor asks about cells."""

    def group(self, cell: Cell) -> str:
        """Name of the worker process that can serve this cell, the same for cells that can share one."""

    def obstacle(self, cell: Cell) -> Status | None:
        """Why the cell cannot be started here (``unsupported``, ``not_installed``), or None."""

    def command(self, cell: Cell) -> Sequence[str]:
        """The command line of the cell's worker."""


class HomeLauncher:
    """Our own runtime with this interpreter, baselines with the interpreter of their own environment."""

    def __init__(self, home: Home, environment: Mapping[str, Any], replays: Replays | None = None) -> None:
        self._home = home
        self._replays = replays or Replays(home)
        self._devices = Devices(home, environment)
        self._baselines = load_baselines(home.baselines)
        self._datasets: set[str] = set()

    def group(self, cell: Cell) -> str:
        """Our systems share one worker per model or set of traces; so do the cells of each baseline.

        Simulated cells of a model stand together: its routing is drawn once.
        """
        if cell.lane == simulated.LANE:
            return f"simulated {cell.model}"
        if cell.weights == RANDOM:
            return f"seqmoe {RANDOM} {cell.model} {cell.layers} {cell.dataset}"
        if cell.routing == REPLAY:
            return f"seqmoe replay {cell.dataset}"
        worker = "seqmoe" if cell.system in SYSTEMS else self._baseline(cell).key
        return f"{worker} {cell.model}"

    def obstacle(self, cell: Cell) -> Status | None:
        """Lane, capability matrix, environment, weights, prompts: in this order, the cheapest first."""
        if cell.lane == simulated.LANE:
            return simulated.obstacle(self._home, cell)
        if cell.routing == REPLAY and cell.system not in SYSTEMS:
            return Status("unsupported", "only our own runtime replays routing", "name one of our systems")
        found = self.random_obstacle(cell)
        if cell.system not in SYSTEMS:
            found = self._baseline_obstacle(cell, self._baseline(cell))
        if found is not None:
            return found
        try:
            if cell.routing == REPLAY:
                self._replays.path(cell.dataset)
                self._replays.predictor(cell)
                return None
            checkpoint_folder(load_model(self._home, cell.model))
            self._find_dataset(cell.dataset)
        except Unavailable as error:
            return Status("not_installed", error.reason, error.hint)
        return None

    def random_obstacle(self, cell: Cell) -> Status | None:
        """What stands in the way of a cell of random weights, without a look at its traces; None for other cells."""
        if cell.weights != RANDOM:
            return None
        if cell.execution == "graph" and self._devices.of(cell) == CPU:
            reason = "execution 'graph' of a model whose routing is replayed needs the CUDA runtime"
            return Status("unsupported", reason, "nox -s gpu, on a machine with an NVIDIA GPU")
        experts = load_model(self._home, cell.model).shortened(cell.layers).geometry
        size, free = experts.total_experts * experts.expert_bytes, available_memory().bytes
        if size <= free:
            return None
        reason = f"its experts take {size / 2**30:.0f} GiB of host memory, {free / 2**30:.0f} are available"
        return Status("unsupported", reason, "cut the model down: --config NAME --weights random --layers N")

    def command(self, cell: Cell) -> Sequence[str]:
        """The worker's command line."""
        if cell.system in SYSTEMS:
            return [sys.executable, "-m", "seqmoe.runtime.worker"]
        baseline = self._baseline(cell)
        return [str(environment_python(baseline, self._home)), str(baseline.worker)]

    def _find_dataset(self, name: str) -> None:
        if name not in self._datasets:
            load_prompts(self._home, name, 1)
            self._datasets.add(name)

    def _baseline(self, cell: Cell) -> Baseline:
        return find_baseline(self._baselines, cell.system)

    def _baseline_obstacle(self, cell: Cell, baseline: Baseline) -> Status | None:
        if cell.lane != "measured":
            reason = "only our own runtime is emulated; a wrapped system runs as it is"
            return Status("unsupported", reason, "put it into a block of lane 'measured'")
        model = load_model(self._home, cell.model)
        refusal = baseline.supports(model.family, model.format, self._devices.of(cell), cell.residency)
        if refusal is not None and self._devices.needs_other_build(baseline):
            hint = f"seqmoe baselines --install {baseline.key} --profile full"
            return Status(
                "not_installed", f"the quick profile of {baseline.name} runs on the CPU only: {refusal}", hint
            )
        if refusal is not None:
            return Status("unsupported", refusal)
        if not is_installed(baseline, self._home):
            return Status("not_installed", f"{baseline.name} has no environment here", baseline.install)
        return None
