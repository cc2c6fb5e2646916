"""A server in a process of its own: started, waited for, and ended with everything that it started."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from baselines._shared.memory import exhausted
from baselines._shared.protocol import Refusal, end_with_parent
from baselines._shared.sse import HOST, answers

_GRACE_SECONDS = 10.0
_END_SECONDS = 1.0
_TAIL_LINES = 8


class Server:
    """A command whose output goes to a log file; a context manager that ends it.

    The server stays in the worker's process group, so that the harness, which ends that group on a time-out, ends the
    server too. It is ended by its process id and those of its descendants; the kernel ends it if the worker is killed.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="seqmoe-server-")
        self.log = Path(self._folder.name) / "server.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                preexec_fn=end_with_parent,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        crashed = isinstance(error, Refusal) and error.kind == "crash"
        if crashed:  # a connection breaks a moment before its server has ended
            _wait(lambda: self._process.poll() is not None, _END_SECONDS)
        died = self._process.poll()
        self.stop()
        tail = self.tail()
        self._folder.cleanup()
        if isinstance(error, Refusal) and crashed and died is not None and tail not in error.reason:
            raise _ended(f"{error.reason}; the server ended with code {died}: {tail}", tail) from None

    def wait_ready(self, port: int, path: str, containing: str = "", seconds: float = 1800.0) -> None:
        """Wait until ``path`` answers; a server that ends first is a crash (or oom) with the tail of its log."""
        limit = time.monotonic() + seconds
        while not answers(port, path, containing):
            if (code := self._process.poll()) is not None:
                tail = self.tail()
                raise _ended(f"the server ended with code {code} before it was ready: {tail}", tail)
            if time.monotonic() > limit:
                raise Refusal("crash", f"the server was not ready after {seconds:.0f} s: {self.tail()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Ask the server to end, and after a grace period end it and every descendant that is left."""
        below = _descendants(self._process.pid)
        if self._process.poll() is None:
            self._process.terminate()
        _wait(lambda: self._process.poll() is not None, _GRACE_SECONDS)
        for pid, started in below:
            _kill(pid, started)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def matches(self, pattern: str) -> list[re.Match[str]]:
        """Every match of ``pattern`` in the log so far, in order."""
        return list(re.finditer(pattern, self.log.read_text(encoding="utf-8", errors="replace")))

    def tail(self) -> str:
        """The last lines of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-_TAIL_LINES:])


def _ended(reason: str, tail: str) -> Refusal:
    place = exhausted(tail)
    return Refusal("crash", reason) if place is None else Refusal("oom", f"{place}: {reason}")


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _descendants(pid: int) -> list[tuple[int, str]]:
    """Process ids below ``pid``, each with its start time, which tells it from a later process of the same id."""
    found: list[tuple[int, str]] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(child) for child in children.read_text().split()]
        except OSError:  # the thread ended between the listing and the reading
            continue
        for child in direct:
            found += [(child, _started(child)), *_descendants(child)]
    return found


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _kill(pid: int, started: str) -> None:
    if started and _started(pid) == started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.05)
