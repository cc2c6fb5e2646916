"""The agents of one sweep as Ray's actors: hired on a node, given runs, waited for, and dismissed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqmoe.harness.dilations import Dilations
from seqmoe.harness.executors.base import Outcome
from seqmoe.harness.executors.cluster.agent import Agent, Order
from seqmoe.harness.executors.cluster.nodes import Node, alive_nodes

# A worker that waits for input ends within this time, or is killed with its agent.
_CLOSING_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Ready:
    """An agent has got its node."""


@dataclass(frozen=True, slots=True)
class Lost:
    """An agent is gone, or with it the node; ``failed`` where it raised and says so itself."""

    reason: str
    failed: bool = False


Event = Ready | Lost | Outcome


class Crew:
    """One agent a node at most. While hired it holds all CPUs and GPUs of its node: nothing else of Ray runs there.

    ``order`` and ``dilations`` are what every agent is told.
    """

    def __init__(self, ray: Any, order: Order, dilations: Dilations) -> None:
        self._ray = ray
        self._told = (order, dilations)
        self._agents: dict[str, Any] = {}
        self._asked: dict[Any, str] = {}
        self._closing: dict[Any, Any] = {}

    def nodes(self) -> list[Node]:
        """The nodes that are alive now."""
        return alive_nodes(self._ray)

    def hire(self, node: Node, resource: str) -> None:
        """Ask for an agent on the node; `Ready` comes when the node has room for it."""
        options = {
            "num_cpus": node.resources["CPU"],
            "num_gpus": node.resources.get("GPU", 0),
            "resources": {resource: 1} if resource else None,
            "max_concurrency": 2,
            "max_restarts": 0,
            "scheduling_strategy": on_node(self._ray, node),
        }
        agent = self._ray.remote(Agent).options(**options).remote(*self._told)
        self._agents[node.id] = agent
        self._asked[agent.ready.remote()] = node.id

    def give(self, node: Node, run: Any) -> None:
        """Let the node's agent carry out a run."""
        self._asked[self._agents[node.id].execute.remote(run)] = node.id

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """What has come from which node (its id), as soon as there is something, after ``seconds`` at the latest."""
        waiting = [*self._asked, *self._closing]
        if not waiting:
            return []
        self._ray.wait(waiting, num_returns=1, timeout=seconds)
        done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        events = []
        for reference in done:
            if reference in self._closing:
                self._ray.kill(self._closing.pop(reference))
            else:
                events.append((self._asked.pop(reference), self._event(reference)))
        return events

    def dismiss(self, node: Node, at_once: bool = False) -> None:
        """Free the node: its agent ends its worker first, or both are killed ``at_once``."""
        agent = self._agents.pop(node.id)
        for reference in [reference for reference, place in self._asked.items() if place == node.id]:
            del self._asked[reference]
        if at_once:
            self._ray.kill(agent)
        else:
            self._closing[agent.close.remote()] = agent

    def end(self, killed: bool) -> None:
        """Dismiss everybody; ``killed`` ends the runs that are going on and their workers."""
        for agent in self._agents.values():
            self._closing[(agent.stop if killed else agent.close).remote()] = agent
        self._agents.clear()
        self._asked.clear()
        if self._closing:
            self._ray.wait([*self._closing], num_returns=len(self._closing), timeout=_CLOSING_SECONDS)
        for agent in self._closing.values():
            self._ray.kill(agent)
        self._closing.clear()

    def _event(self, reference: Any) -> Event:
        exceptions = self._ray.exceptions
        try:
            value = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            return Lost(first_line(error), failed=True)
        except exceptions.RayError as error:
            return Lost(first_line(error))
        return value if isinstance(value, Outcome) else Ready()


def on_node(ray: Any, node: Node) -> Any:
    """Ray's strategy for that node and no other."""
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)


def first_line(error: Exception) -> str:
    """What an error of Ray's says, without the traces of its processes."""
    cause = getattr(error, "cause", None)
    words = str(cause if isinstance(cause, Exception) else error).strip() or type(error).__name__
    return words.splitlines()[0]
