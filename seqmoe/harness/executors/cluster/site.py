"""A Ray cluster as the place that a sweep runs in."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.dilations import Dilations
from seqmoe.harness.executors.base import Executor
from seqmoe.harness.executors.cluster.agent import Order, Survey, survey
from seqmoe.harness.executors.cluster.crew import Crew, first_line, on_node
from seqmoe.harness.executors.cluster.executor import ClusterExecutor
from seqmoe.harness.executors.cluster.library import connected
from seqmoe.harness.executors.cluster.nodes import Node, alive_nodes, no_node
from seqmoe.harness.executors.cluster.placing import Placing
from seqmoe.harness.executors.site import Site
from seqmoe.harness.observing import without_paths
from seqmoe.harness.record import Status
from seqmoe.spec.declared import read_toml
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell

_log = logging.getLogger(__name__)
# A node prepares its runtime environment and reads the digests of every model in this time.
_SURVEY_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """``address`` is the head's HOST:PORT, ``runtime_env`` a TOML file of what Ray prepares on the nodes.

    Measured cells ask for one of the resource ``hardware``, a name of suites/hardware; empty for a CPU only.
    """

    address: str | None = None
    runtime_env: Path | None = None
    hardware: str = ""

    @contextmanager
    def open(self, home: Home, order: Order, own: Site) -> Iterator[ClusterSite]:
        """Connect and look at every node. ``own`` is this machine, which runs nothing itself."""
        if self.hardware:
            load_hardware(home, self.hardware)
        table = None if self.runtime_env is None else read_toml(self.runtime_env)
        with connected(self.address, table) as ray:
            yield ClusterSite(ray, order, self.hardware, own)


class ClusterSite:
    """Cells run on the nodes that answered; what no node offers enough for has an obstacle and is not waited for."""

    def __init__(self, ray: Any, order: Order, hardware: str, own: Site) -> None:
        self._ray, self._order, self._own = ray, order, own
        self._nodes = alive_nodes(ray)
        surveys, self._refused = _surveys(ray, [node for node in self._nodes if node.offers("")], order)
        self._placing = Placing([node for node in self._nodes if node.id in surveys], surveys, hardware)

    def group(self, cell: Cell) -> str:
        """Name of the worker process that can serve this cell."""
        return self._own.group(cell)

    def obstacle(self, cell: Cell) -> Status | None:
        """Why no node can start the cell, or None."""
        facts = self._placing.facts(cell)
        if facts is not None:
            return facts.obstacle
        resource = self._placing.resource(cell)
        for node in self._nodes:
            if node.offers(resource):
                return Status("not_installed", f"node {node.name} {self._refused[node.id]}", "make it ready for seqmoe")
        return no_node(resource, self._nodes)

    def environment_of(self, cell: Cell) -> Mapping[str, Any]:
        """The environment of the node that the cell would run on; of this machine where there is none."""
        return self._placing.environment_of(cell) or self._own.environment_of(cell)

    def executor(self, dilations: Dilations) -> Executor:
        """Who carries out the runs, on several nodes at a time."""
        return ClusterExecutor(Crew(self._ray, self._order, dilations), self._placing, self._order.timeout)


def _surveys(ray: Any, nodes: Sequence[Node], order: Order) -> tuple[dict[str, Survey], dict[str, str]]:
    """What every node says, and why the others cannot serve, by node id."""
    task = ray.remote(survey)
    options = {"num_cpus": 0, "max_retries": 0}
    asked = {node.id: task.options(**options, scheduling_strategy=on_node(ray, node)).remote(order) for node in nodes}
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_SURVEY_SECONDS)
    found, refused = {}, {}
    for node in nodes:
        try:
            found[node.id] = ray.get(asked[node.id], timeout=0)
        except ray.exceptions.GetTimeoutError:
            ray.cancel(asked[node.id], force=True)
            refused[node.id] = f"did not answer within {_SURVEY_SECONDS:g} s"
        except ray.exceptions.RayError as error:
            refused[node.id] = f"cannot serve: {without_paths(first_line(error))[:300]}"
        if node.id in refused:
            _log.warning("node %s is left out: it %s", node.name, refused[node.id])
    return found, refused
