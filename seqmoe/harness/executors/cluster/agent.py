"""What runs on a node: it looks at the cells there, and carries out runs as the local executor does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import seqmoe
from seqmoe.harness.devices import CPU, OWN_DEVICE
from seqmoe.harness.dilations import Dilations
from seqmoe.harness.executors.base import Outcome
from seqmoe.harness.executors.site import LocalSite
from seqmoe.harness.fingerprint import fingerprint, load_average
from seqmoe.harness.launch import Launcher
from seqmoe.harness.observing import without_paths
from seqmoe.harness.plan import Run
from seqmoe.harness.prompts import Unavailable
from seqmoe.harness.record import Status
from seqmoe.harness.replays import Replays
from seqmoe.harness.simulated import SimulatedExecutor
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home, find_home
from seqmoe.spec.suite import REPLAY, Cell


@dataclass(frozen=True, slots=True)
class Order:
    """What every node is told of a sweep. ``home`` is where the sweep was started; a node may have that folder too."""

    home: Path
    cells: tuple[Cell, ...]
    threads: int
    timeout: float
    device: str = CPU
    traces: str | None = None
    predictor: Path | None = None
    launcher: Launcher | None = None
    version: str = seqmoe.__version__


@dataclass(frozen=True, slots=True)
class Facts:
    """One cell on one node, as a sweep on that node itself would see it."""

    obstacle: Status | None
    environment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a node says of itself: the host that its records belong to, and facts on every cell by key."""

    host: str
    facts: Mapping[str, Facts]


def node_home(folder: Path) -> Home:
    """The clone at the same place as where the sweep was started, else the node's own (see `find_home`)."""
    return find_home(folder) if (folder / "suites").is_dir() else find_home()


def survey(order: Order) -> Survey:
    """Look at every cell; nothing is started. Raises `InputError` for a node of another version."""
    if seqmoe.__version__ != order.version:
        raise InputError(f"has seqmoe {seqmoe.__version__}, the sweep {order.version}; install the same on both")
    _, site, environment = _site(order)
    return Survey(environment["host"], {cell.key: _facts(site, cell, environment) for cell in order.cells})


class Agent:
    """Carries out the runs that a sweep gives to one node, one at a time. ``stop`` may come from another thread."""

    def __init__(self, order: Order, dilations: Dilations) -> None:
        home, self._site, _ = _site(order)
        self._workers = self._site.workers(dilations)
        self._executor = SimulatedExecutor(home, self._workers)

    def ready(self) -> bool:
        """Answers once the node has room for the agent."""
        return True

    def execute(self, run: Run) -> Outcome:
        """How the run ended, with the environment of this node."""
        ((_, outcome),) = self._executor.execute([run])
        environment = {**self._site.environment_of(run.cell), "load_average": load_average()}
        return replace(outcome, environment=environment)

    def stop(self) -> None:
        """End the run that is going on, and its worker."""
        self._workers.stop()

    def close(self) -> None:
        """End the worker that waits for more."""
        self._executor.__exit__(None, None, None)


def _site(order: Order) -> tuple[Home, LocalSite, dict[str, Any]]:
    home = node_home(order.home)
    replays = Replays(home, order.traces, order.predictor)
    environment = fingerprint(home) | {"threads": order.threads}
    if order.device != CPU:
        environment[OWN_DEVICE] = order.device
    replays.prepare([cell for cell in order.cells if _has_predictor(replays, cell)], lambda text: None)
    return home, LocalSite(home, environment, replays, order.threads, order.timeout, order.launcher), environment


def _has_predictor(replays: Replays, cell: Cell) -> bool:
    """Whether the cell's predictor lies here: none is trained on a node, or every node would have one of its own."""
    try:
        return cell.routing == REPLAY and replays.predictor(cell) is not None
    except Unavailable:
        return False


def _facts(site: LocalSite, cell: Cell, environment: Mapping[str, Any]) -> Facts:
    try:
        return Facts(site.obstacle(cell), site.environment_of(cell))
    except InputError as error:
        return Facts(Status("unsupported", without_paths(str(error))), environment)
