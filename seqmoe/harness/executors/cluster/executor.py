"""Carries out runs on several nodes: what is compared stays on one node, and a lost node's runs move to another."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from seqmoe.harness.executors.base import Needed, Outcome, always
from seqmoe.harness.executors.cluster.crew import Event, Lost
from seqmoe.harness.executors.cluster.nodes import Node, no_node
from seqmoe.harness.executors.cluster.placing import Lot, Placing
from seqmoe.harness.failures import NODE_LOST
from seqmoe.harness.observing import without_paths
from seqmoe.harness.plan import Run
from seqmoe.harness.record import Observations, Status

_log = logging.getLogger(__name__)
# How often a run is begun before its cell is marked, the first time included.
MOST_TRIES = 3
_LOOK_SECONDS = 1.0
# Beyond the time that a request may take on the node itself: its worker starts, loads and is ended.
_GRACE_SECONDS = 120.0
_BUSY_SECONDS = 60.0


class Agents(Protocol):
    """What the executor asks of `seqmoe.harness.executors.cluster.crew.Crew`."""

    def nodes(self) -> list[Node]:
        """The nodes that are alive now."""

    def hire(self, node: Node, resource: str) -> None:
        """Ask for an agent on the node."""

    def give(self, node: Node, run: Run) -> None:
        """Let it carry out a run."""

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """What has come from which node."""

    def dismiss(self, node: Node, at_once: bool = False) -> None:
        """Free the node."""

    def end(self, killed: bool) -> None:
        """Free all nodes."""


@dataclass(slots=True)
class _Post:
    """A node that works on a lot. ``run`` is what it does now, since ``began`` (monotonic seconds) and ``started``."""

    node: Node
    lot: Lot
    run: Run | None = None
    began: float = field(default_factory=time.monotonic)
    started: str = ""
    told: bool = False


class ClusterExecutor:
    """Leaving the context ends every agent and its worker. ``timeout`` is seconds per request on a node."""

    def __init__(self, agents: Agents, placing: Placing, timeout: float) -> None:
        self._agents, self._placing, self._timeout = agents, placing, timeout
        self._lots: deque[Lot] = deque()
        self._posts: dict[str, _Post] = {}
        self._tries: Counter[tuple[str, int]] = Counter()
        self._lost: dict[str, str] = {}
        self._needed: Needed = always

    def __enter__(self) -> ClusterExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._agents.end(killed=kind is not None)

    def execute(self, runs: Iterable[Run], needed: Needed = always) -> Iterator[tuple[Run, Outcome]]:
        """Carry out runs as nodes become free. Interrupted, it still gives what the nodes have finished by then."""
        self._needed = needed
        self._lots.extend(self._placing.lots(runs))
        try:
            while self._lots or self._posts:
                yield from self._place()
                yield from self._collect()
        except KeyboardInterrupt:
            for node, event in self._agents.wait(0.0):
                run = self._posts[node].run
                if run is not None and isinstance(event, Outcome):
                    yield run, event
            raise

    def _place(self) -> Iterator[tuple[Run, Outcome]]:
        """Give waiting lots to free nodes; what no living node can serve ends here."""
        waiting, self._lots = list(self._lots), deque()
        alive = self._agents.nodes() if waiting else []
        for lot in waiting:
            if not lot.runs:
                continue
            fitting = self._placing.fitting(lot, alive)
            free = [node for node in fitting if node.id not in self._posts]
            if free:
                self._agents.hire(free[0], lot.resource)
                self._posts[free[0].id] = _Post(free[0], lot)
            elif fitting:
                self._lots.append(lot)
            else:
                yield from self._given_up(lot, alive)

    def _collect(self) -> Iterator[tuple[Run, Outcome]]:
        for place, event in self._agents.wait(_LOOK_SECONDS):
            post = self._posts.get(place)
            if post is None:
                continue
            if isinstance(event, Lost):
                yield from self._ended_early(post, event)
                continue
            if isinstance(event, Outcome) and post.run is not None:
                run, post.run = post.run, None
                yield run, event
            self._advance(post)
        for post in list(self._posts.values()):
            yield from self._watched(post)

    def _advance(self, post: _Post) -> None:
        """Begin the next run of the post's lot, or free the node after the last."""
        post.lot.interrupted = None
        while post.lot.runs:
            run = post.lot.runs.popleft()
            if self._needed(run):
                post.run, post.began = run, time.monotonic()
                post.started = datetime.now(UTC).isoformat(timespec="milliseconds")
                self._agents.give(post.node, run)
                return
        self._agents.dismiss(post.node)
        del self._posts[post.node.id]

    def _ended_early(self, post: _Post, event: Lost) -> Iterator[tuple[Run, Outcome]]:
        """The agent is gone: its run is tried again, here or elsewhere, until it has been tried often enough."""
        self._free(post)
        run = post.run or post.lot.runs.popleft()
        reason = without_paths(event.reason)[:300]
        key = (run.cell.key, run.repeat)
        self._tries[key] += 1
        if event.failed or self._tries[key] >= MOST_TRIES:
            post.lot.interrupted = None
        if event.failed:
            yield run, self._failure(post, run, Status("crash", f"the node's agent failed: {reason}"))
            return
        self._lost[post.node.id] = post.node.name
        failure = self._failure(post, run, _lost_status(post.node.name, self._tries[key], reason))
        if self._tries[key] >= MOST_TRIES:
            yield run, failure
            return
        _log.warning("node %s was lost (%s); %s is tried again", post.node.name, reason, run.cell.label)
        post.lot.runs.appendleft(run)
        if post.run is not None:
            post.lot.interrupted = failure

    def _watched(self, post: _Post) -> Iterator[tuple[Run, Outcome]]:
        """Look at how long the post takes: one that does not answer is given up, one that waits for room is told of."""
        seconds = time.monotonic() - post.began
        if post.run is not None and seconds > self._timeout + _GRACE_SECONDS:
            self._free(post)
            reason = f"node {post.node.name} did not answer within {seconds:.0f} s"
            yield post.run, self._failure(post, post.run, Status("hang", reason, "look at the node and its network"))
        elif post.run is None and seconds > _BUSY_SECONDS and not post.told:
            post.told = True
            _log.warning(
                "node %s has not begun after %.0f s: other work of Ray holds it, or it starts slowly; its cells wait",
                post.node.name,
                seconds,
            )

    def _given_up(self, lot: Lot, alive: list[Node]) -> Iterator[tuple[Run, Outcome]]:
        """Runs that no living node can serve: the one that was under way has failed, the others never began."""
        if lot.interrupted:
            yield lot.runs.popleft(), lot.interrupted
        for run in lot.runs:
            if self._needed(run):
                status = no_node(lot.resource, alive, sorted(set(self._lost.values())))
                now = datetime.now(UTC).isoformat(timespec="milliseconds")
                environment = self._placing.environment_of(run.cell)
                yield run, Outcome(status, Observations(), now, 0.0, environment)

    def _free(self, post: _Post) -> None:
        """Take the node away from its lot, which waits again if anything is left of it."""
        self._agents.dismiss(post.node, at_once=True)
        del self._posts[post.node.id]
        self._lots.append(post.lot)

    def _failure(self, post: _Post, run: Run, status: Status) -> Outcome:
        environment = self._placing.environment_on(post.node, run.cell)
        started = post.started or datetime.now(UTC).isoformat(timespec="milliseconds")
        return Outcome(status, Observations(), started, time.monotonic() - post.began, environment)


def _lost_status(name: str, tries: int, reason: str) -> Status:
    often = f", try {tries} of {MOST_TRIES}" if tries > 1 else ""
    return Status("crash", f"{NODE_LOST} while the cell ran: {name}{often} ({reason})", "look at the node")
