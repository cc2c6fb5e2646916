"""Nodes of a cluster, and which of them a cell may run on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.record import Status
from seqmoe.spec.suite import Cell


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the cluster. ``resources`` are all that it offers, in use or not, by Ray's names."""

    id: str
    name: str
    resources: Mapping[str, float]

    def offers(self, resource: str) -> bool:
        """Whether it has a CPU to run on and, unless the name is empty, one of that resource."""
        return self.resources.get("CPU", 0) >= 1 and (not resource or self.resources.get(resource, 0) >= 1)


def alive_nodes(ray: Any) -> list[Node]:
    """The nodes that the cluster counts as alive, in the order of their names."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    nodes = [Node(node["NodeID"], node["NodeManagerHostname"], dict(node["Resources"])) for node in alive]
    return sorted(nodes, key=lambda node: (node.name, node.id))


def resource_of(cell: Cell, hardware: str = "") -> str:
    """The resource that a cell asks for besides a CPU; empty for none.

    A measured cell runs on the ``hardware`` that the sweep was told. Emulated and simulated ones only imitate theirs.
    """
    return hardware if cell.lane == "measured" else ""


def common_host(hosts: Iterable[str]) -> str:
    """Of the hosts of fitting nodes the one that most are of: cells that ask for the same are compared with each other.

    The first by name where several are equally many.
    """
    counts = Counter(hosts)
    return min(counts, key=lambda host: (-counts[host], host))


def no_node(resource: str, nodes: Sequence[Node], lost: Sequence[str] = ()) -> Status:
    """Why a cell has no node to run on, and what would give it one. ``lost`` are nodes that are gone."""
    offered = sorted({name for node in nodes for name in node.resources if not name.startswith("node:")})
    gone = f" since node {', '.join(lost)} was lost" if lost else ""
    wanted = f"the resource {resource!r} and a CPU" if resource else "a CPU"
    start = f"ray start --address=HOST:6379 --resources='{{\"{resource}\": 1}}'" if resource else "ray start"
    reason = f"no node of the Ray cluster offers {wanted}{gone}; offered: {', '.join(offered) or 'nothing'}"
    return Status("not_installed", reason, f"on such a machine: {start}")
