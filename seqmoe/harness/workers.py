"""A worker: a process in a group of its own that answers JSON requests with JSON events, and never outlives us."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

LAST_EVENTS = ("done", "error")
_TAIL_BYTES = 4000
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 24
_REAP_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class WorkerCrashed(Exception):
    """The worker ended, or broke the protocol, in the middle of a request. ``tail`` is the end of its stderr."""

    def __init__(self, reason: str, tail: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.tail = tail
        self.code = code


class WorkerHung(Exception):
    """The worker did not end a request in time; it and its whole process group have been killed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no end of the request after {seconds:g} s")
        self.seconds = seconds


class WorkerProcess:
    """Starts ``command`` in a process group of its own. A context manager: what is left of the group is killed.

    ``threads`` becomes the thread count of OpenMP and of the libraries that have their own; ``environment`` is added to
    this process's. Standard error goes to a temporary file. Raises ``OSError`` if the command cannot be started.
    """

    def __init__(
        self, command: Sequence[str], threads: int = 1, environment: Mapping[str, str] | None = None, grace: float = 2.0
    ) -> None:
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        self._grace = grace
        self._stderr = tempfile.TemporaryFile(prefix="seqmoe-worker-")  # noqa: SIM115 (lives as long as the worker)
        self._buffer = bytearray()
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env={**os.environ, "TOKENIZERS_PARALLELISM": "false", **counts, **(environment or {})},
                start_new_session=True,
            )
        except OSError:
            self._stderr.close()
            raise
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    @property
    def alive(self) -> bool:
        """Whether it can be given another request."""
        return not self._exited()

    @property
    def pid(self) -> int:
        """Process id, and id of the process group."""
        return self._process.pid

    def request(self, message: Mapping[str, Any], timeout: float) -> Iterator[dict[str, Any]]:
        """Send one request and yield its events up to and with ``done`` or ``error``.

        Raises `WorkerHung` when that takes longer than ``timeout`` seconds, `WorkerCrashed` when the worker ends or
        writes a line that is no event; in both cases the process group is gone.
        """
        deadline = time.monotonic() + timeout
        unsent = json.dumps(message).encode() + b"\n"
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            if selector.select(0):
                self._receive()
            if self._buffer:
                raise self._crashed("wrote to stdout after the end of a request")
            selector.register(self._stdin, selectors.EVENT_WRITE)
            while True:
                while (line := self._take_line()) is not None:
                    event = self._event(line)
                    yield event
                    if event["event"] in LAST_EVENTS:
                        return
                left = deadline - time.monotonic()
                if left <= 0:
                    self.kill()
                    raise WorkerHung(timeout)
                ready = selector.select(min(left, _LOOK_SECONDS))
                if not ready and self._exited():  # a child of its own may still hold its stdout open
                    raise self._crashed("")
                for key, _ in ready:
                    if key.fileobj is self._stdin:
                        unsent = self._send(unsent)
                        if not unsent:
                            selector.unregister(self._stdin)
                    else:
                        self._receive()

    def close(self, patience: float = _REAP_SECONDS) -> None:
        """End of input: let the worker end by itself for ``patience`` seconds, then kill what is left of its group."""
        if not self._stdin.closed:
            self._stdin.close()
        self._await_exit(patience)
        self.kill()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Signal the whole group and return; for another thread than the one that reads the events and cleans up."""
        if self._process.returncode is None:
            self._signal_group(number)

    def kill(self) -> None:
        """Terminate the whole group, and after a grace period kill it; safe to call again."""
        if self._process.returncode is None:
            try:
                if not self._exited():
                    self._signal_group(signal.SIGTERM)
                    self._await_exit(self._grace)
            finally:
                # The leader has not been reaped, so its id cannot have become another process's.
                self._signal_group(signal.SIGKILL)
                self._process.wait(_REAP_SECONDS)
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close()

    def _take_line(self) -> bytes | None:
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        return bytes(line)

    def _event(self, line: bytes) -> dict[str, Any]:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise self._crashed(
                f"wrote to stdout what is no event of the protocol: {line[:80].decode(errors='replace')!r}"
            )
        return event

    def _send(self, data: bytes) -> bytes:
        try:
            return data[os.write(self._stdin.fileno(), data[:_CHUNK]) :]
        except BrokenPipeError:
            return b""  # it has ended; reading its output says so, and after which words

    def _receive(self) -> None:
        data = os.read(self._stdout.fileno(), _CHUNK)
        self._buffer += data
        if not data:
            raise self._crashed("")
        if len(self._buffer) > _LONGEST_LINE and b"\n" not in self._buffer:
            raise self._crashed(f"wrote a line of more than {_LONGEST_LINE} bytes to stdout")

    def _crashed(self, reason: str) -> WorkerCrashed:
        if not reason:
            self._await_exit(self._grace)
            reason = "" if self._exited() else "closed its stdout in the middle of a request"
        ended_by_itself = self._exited()
        tail = self._tail()
        self.kill()
        code = self._process.returncode if ended_by_itself else None
        return WorkerCrashed(reason or _describe(code), tail, code)

    def _tail(self) -> str:
        # The worker shares the file's offset: pread leaves it alone.
        file = self._stderr.fileno()
        start = max(0, os.fstat(file).st_size - _TAIL_BYTES)
        return os.pread(file, _TAIL_BYTES, start).decode("utf-8", "replace").strip()

    def _exited(self) -> bool:
        """Whether the leader has ended, without reaping it: until then its id, and its group's, stay its own."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _await_exit(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while not self._exited() and time.monotonic() < limit:
            time.sleep(0.01)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return


def _describe(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} in the middle of a request"
