"""Which nodes a cell may run on, as they were found before the sweep, and which runs stay together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqmoe.harness.executors.base import Outcome
from seqmoe.harness.executors.cluster.agent import Facts, Survey
from seqmoe.harness.executors.cluster.nodes import Node, common_host, resource_of
from seqmoe.harness.plan import Run
from seqmoe.spec.suite import Cell


@dataclass(slots=True)
class Lot:
    """Runs that one node carries out in their order. ``able`` are the ids of the nodes that could.

    ``interrupted`` is how the first run ended on a node that was lost, if it ran on one.
    """

    resource: str
    able: frozenset[str]
    host: str
    runs: deque[Run] = field(default_factory=deque)
    interrupted: Outcome | None = None


class Placing:
    """``nodes`` are those that answered, ``surveys`` what they said by id, ``hardware`` what measured cells ask for."""

    def __init__(self, nodes: Sequence[Node], surveys: Mapping[str, Survey], hardware: str) -> None:
        self._nodes, self._surveys, self._hardware = nodes, surveys, hardware

    def resource(self, cell: Cell) -> str:
        """What the cell asks for besides a CPU."""
        return resource_of(cell, self._hardware)

    def facts(self, cell: Cell) -> Facts | None:
        """What the cell's node says of it, one that can run it if there is any; None where no node offers enough.

        Cells that ask for the same resource are asked of the same kind of host.
        """
        offering = [node for node in self._nodes if node.offers(self.resource(cell))]
        able = [node for node in offering if self._fact(node, cell).obstacle is None]
        chosen = able or offering
        if not chosen:
            return None
        host = self._host(chosen)
        return next(self._fact(node, cell) for node in chosen if self._surveys[node.id].host == host)

    def environment_of(self, cell: Cell) -> Mapping[str, Any] | None:
        """The environment that the cell's record is expected to carry."""
        facts = self.facts(cell)
        return None if facts is None else facts.environment

    def environment_on(self, node: Node, cell: Cell) -> Mapping[str, Any]:
        """The environment of the cell's record on that node."""
        return self._fact(node, cell).environment

    def lots(self, runs: Iterable[Run]) -> list[Lot]:
        """All runs of one model that ask for the same and can run on the same nodes stay together, in their order."""
        found: dict[tuple[object, ...], Lot] = {}
        for run in runs:
            resource = self.resource(run.cell)
            able = [n for n in self._nodes if n.offers(resource) and self._fact(n, run.cell).obstacle is None]
            key = (resource, run.cell.model, frozenset(node.id for node in able))
            if key not in found:
                found[key] = Lot(resource, key[2], self._host(able) if able else "")
            found[key].runs.append(run)
        return list(found.values())

    def fitting(self, lot: Lot, alive: Iterable[Node]) -> list[Node]:
        """The living nodes that can serve a lot: those of the expected host, others only where none is left of them."""
        able = [node for node in alive if node.id in lot.able]
        return [node for node in able if self._surveys[node.id].host == lot.host] or able

    def _fact(self, node: Node, cell: Cell) -> Facts:
        return self._surveys[node.id].facts[cell.key]

    def _host(self, nodes: Sequence[Node]) -> str:
        return common_host(self._surveys[node.id].host for node in nodes)
