"""Runs cells one after another on this machine, one worker process at a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from seqmoe.harness.executors.base import Needed, Outcome, always
from seqmoe.harness.launch import Launcher
from seqmoe.harness.observing import Observer, ProtocolError, crash, without_paths
from seqmoe.harness.plan import Run
from seqmoe.harness.prompts import Unavailable
from seqmoe.harness.record import Observations, Status
from seqmoe.harness.request import Requests
from seqmoe.harness.workers import WorkerCrashed, WorkerHung, WorkerProcess
from seqmoe.spec.errors import InputError

# After these the process may be damaged: the next cell gets a fresh one.
_FATAL = ("oom", "crash", "hang")


class LocalExecutor:
    """Keeps the worker of the last run while the next one is of the same group. ``timeout`` is seconds per request."""

    def __init__(self, launcher: Launcher, requests: Requests, threads: int, timeout: float) -> None:
        self._launcher = launcher
        self._requests = requests
        self._threads = threads
        self._timeout = timeout
        self._worker: WorkerProcess | None = None
        self._group = ""
        self._stopped = False

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_worker(killed=kind is not None)

    def execute(self, runs: Iterable[Run], needed: Needed = always) -> Iterator[tuple[Run, Outcome]]:
        """Carry out runs in order."""
        for run in runs:
            if not needed(run):
                continue
            started, begin = datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter()
            status, observations = self._observe(run)
            if status.kind in _FATAL:
                self._end_worker(killed=True)
            yield run, Outcome(status, observations, started, time.perf_counter() - begin)

    def stop(self, patience: float = 2.0) -> None:
        """End the worker for good, from another thread than the one that waits for it; seconds of ``patience``."""
        self._stopped = True
        worker, limit = self._worker, time.monotonic() + patience
        if worker is None:
            return
        worker.stop(signal.SIGTERM)
        while worker.alive and time.monotonic() < limit:
            time.sleep(0.02)
        worker.stop(signal.SIGKILL)

    def _observe(self, run: Run) -> tuple[Status, Observations]:
        try:
            request = self._requests.build(run.cell)
        except Unavailable as error:
            return Status("not_installed", error.reason, error.hint), Observations()
        except InputError as error:
            return Status("unsupported", without_paths(str(error))), Observations()
        try:
            worker = self._worker_of(run)
        except OSError as error:
            hint = "install the system's environment again"
            return Status(
                "not_installed", without_paths(f"the worker cannot be started: {error}"), hint
            ), Observations()
        return self._ask(worker, request, Observer(run.cell))

    def _ask(
        self, worker: WorkerProcess, request: Mapping[str, Any], observer: Observer
    ) -> tuple[Status, Observations]:
        try:
            for event in worker.request(request, self._timeout):
                observer.add(event)
        except WorkerHung as error:
            failure = Status("hang", f"after {error.seconds:g} s", "give it more time, or look at what it waits for")
        except WorkerCrashed as error:
            failure = crash(error.reason, error.tail)
        except ProtocolError as error:
            failure = Status("crash", f"broke the worker protocol: {without_paths(str(error))}")
        else:
            return observer.result()
        return failure, Observations(stats=observer.result()[1].stats)

    def _worker_of(self, run: Run) -> WorkerProcess:
        if self._worker is None or self._group != run.group or not self._worker.alive:
            self._end_worker(killed=False)
            self._worker = WorkerProcess(self._launcher.command(run.cell), self._threads)
            self._group = run.group
            if self._stopped:
                self._worker.stop(signal.SIGKILL)
        return self._worker

    def _end_worker(self, killed: bool) -> None:
        if self._worker is None:
            return
        if killed:
            self._worker.kill()
        else:
            self._worker.close()
        self._worker = None
