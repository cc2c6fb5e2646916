"""Where a sweep runs: what stands in the way of its cells there, under which conditions, and who carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from seqmoe.harness.devices import Devices
from seqmoe.harness.dilations import Dilations
from seqmoe.harness.executors.base import Executor
from seqmoe.harness.executors.local import LocalExecutor
from seqmoe.harness.launch import HomeLauncher, Launcher
from seqmoe.harness.record import Status
from seqmoe.harness.replays import Replays
from seqmoe.harness.request import Requests
from seqmoe.harness.simulated import SimulatedExecutor
from seqmoe.harness.weights import Weights
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell


class Site(Protocol):
    """What a sweep asks about the place that it runs in."""

    def group(self, cell: Cell) -> str:
        """Name of the worker process that can serve this cell."""

    def obstacle(self, cell: Cell) -> Status | None:
        """Why the cell cannot be started, or None."""

    def environment_of(self, cell: Cell) -> Mapping[str, Any]:
        """What the cell's record would carry; its ``host`` names the store."""

    def executor(self, dilations: Dilations) -> Executor:
        """Who carries out the runs; ``dilations`` are what emulated cells ran with before."""


class LocalSite:
    """This machine. ``environment`` is its fingerprint, ``timeout`` seconds per request."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, Any],
        replays: Replays,
        threads: int,
        timeout: float,
        launcher: Launcher | None = None,
    ) -> None:
        self._home, self._environment, self._replays = home, environment, replays
        self._threads, self._timeout = threads, timeout
        self._launcher = launcher or HomeLauncher(home, environment, replays)
        self._devices, self._weights = Devices(home, environment), Weights(home, replays)

    def group(self, cell: Cell) -> str:
        """Name of the worker process that can serve this cell."""
        return self._launcher.group(cell)

    def obstacle(self, cell: Cell) -> Status | None:
        """Why the cell cannot be started here, or None."""
        return self._launcher.obstacle(cell)

    def environment_of(self, cell: Cell) -> dict[str, Any]:
        """The fingerprint with the cell's device and the digests of its weights."""
        return {**self._environment, "device": self._devices.of(cell), "weights": self._weights.of(cell)}

    def workers(self, dilations: Dilations) -> LocalExecutor:
        """Who carries out all runs but simulated ones."""
        requests = Requests(self._home, self._environment, self._threads, self._replays, dilations)
        return LocalExecutor(self._launcher, requests, self._threads, self._timeout)

    def executor(self, dilations: Dilations) -> Executor:
        """Who carries out the runs, one after another."""
        return SimulatedExecutor(self._home, self.workers(dilations))
