"""Runs several cells at a time, each in a child process of its own; none of them outlives the ``with`` block."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from seqmoe.harness.observing import crash, without_paths
from seqmoe.harness.record import OK, Status
from seqmoe.harness.workers import WorkerCrashed, WorkerHung, WorkerProcess
from seqmoe.spec.study import StudyCell

_ERROR_KINDS = ("unsupported", "not_installed", "oom", "crash", "invalid")
# Asked to end, a child has this long, then it is killed.
_GRACE_SECONDS = 3.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One cell, the request that its child is sent, and the seconds that it may take."""

    cell: StudyCell
    request: Mapping[str, Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A child has been started for the cell."""

    cell: StudyCell


@dataclass(frozen=True, slots=True)
class Progressed:
    """A child has said how far it is; ``event`` are its words."""

    cell: StudyCell
    event: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A cell is over. ``observations`` are what its child computed; ``started`` is UTC in ISO 8601."""

    cell: StudyCell
    status: Status
    observations: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0


News = Begun | Progressed | Ended


class Parallel:
    """At most ``jobs`` children of ``command`` at a time, with ``threads`` CPU threads each. A context manager."""

    def __init__(self, command: Sequence[str], jobs: int, threads: int = 1) -> None:
        self._command = command
        self._jobs = jobs
        self._threads = threads
        self._news: queue.Queue[News | BaseException] = queue.Queue()
        self._lock = threading.Lock()
        self._running: set[WorkerProcess] = set()
        self._stopping = False
        self._keepers: list[threading.Thread] = []

    def __enter__(self) -> Parallel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._stopping = True
        self._signal(signal.SIGTERM)
        limit = time.monotonic() + _GRACE_SECONDS
        for keeper in self._keepers:
            keeper.join(max(0.0, limit - time.monotonic()))
        self._signal(signal.SIGKILL)
        for keeper in self._keepers:
            keeper.join()

    def carry_out(self, tasks: Sequence[Task]) -> Iterator[News]:
        """Start tasks in their order and tell what happens as it happens; a failed cell is news, never an exception."""
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        for _ in range(min(self._jobs, len(tasks))):
            keeper = threading.Thread(target=self._keep, args=(waiting,), daemon=True)
            self._keepers.append(keeper)
            keeper.start()
        left = len(tasks)
        while left:
            try:
                news = self._news.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if isinstance(news, BaseException):
                raise news
            left -= isinstance(news, Ended)
            yield news

    def _keep(self, waiting: queue.SimpleQueue[Task]) -> None:
        """The life of one keeper: one child after another, until nothing waits."""
        try:
            while not self._stopping:
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return
                self._news.put(self._compute(task))
        except BaseException as error:  # a fault of ours must reach the main thread, or it would wait for ever
            self._news.put(error)

    def _compute(self, task: Task) -> Ended:
        started, begin = datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter()
        observations: dict[str, Any] = {}
        try:
            status = self._ask(task, observations)
        except OSError as error:
            status = Status("crash", without_paths(f"the child process cannot be started: {error}"))
        except WorkerHung as error:
            status = Status("hang", f"after {error.seconds:.0f} s", "give it more time, or look at what it waits for")
        except WorkerCrashed as error:
            status = crash(error.reason, error.tail)
        return Ended(task.cell, status, observations, started, time.perf_counter() - begin)

    def _ask(self, task: Task, observations: dict[str, Any]) -> Status:
        with self._lock:
            if self._stopping:
                return Status("crash", "stopped before it began")
            worker = WorkerProcess(self._command, self._threads)
            self._running.add(worker)
        try:
            with worker:
                self._news.put(Begun(task.cell))
                for event in worker.request(task.request, task.timeout):
                    if event["event"] == "result":
                        observations.update(event["observations"])
                    elif event["event"] == "error":
                        return _failure(event)
                    elif event["event"] == "progress":
                        self._news.put(Progressed(task.cell, event))
                return Status(OK) if observations else Status("crash", "the child process gave no result")
        finally:
            with self._lock:
                self._running.discard(worker)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            for worker in self._running:
                worker.stop(number)


def _failure(event: Mapping[str, Any]) -> Status:
    kind = event.get("kind")
    reason = without_paths(str(event.get("reason", ""))) or "no reason was given"
    if kind not in _ERROR_KINDS:
        return Status("crash", f"unknown kind of error {kind!r}: {reason}")
    return Status(str(kind), reason, without_paths(str(event.get("hint", ""))))
