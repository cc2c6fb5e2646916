"""`seqmoe serve` as a process that does not outlive the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_START_SECONDS = 300.0
_TAIL = 1500
# They would let a proxy answer instead of the server, or ask for a token that clients do not have.
_FOREIGN = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SEQMOE_TOKEN")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server: its address, its process, and the file of what it says."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def resident(self) -> int:
        """Bytes of its memory that are in RAM; ``ProcessLookupError`` once it has ended."""
        return resident_bytes(self.process.pid)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_TAIL:].strip()

    def complaints(self) -> list[str]:
        """Lines of its log that tell of a failure."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if re.match(_COMPLAINT, line)]


_COMPLAINT = r"seqmoe: (ERROR|CRITICAL)|ERROR:|CRITICAL:|Traceback"


@contextmanager
def served(arguments: Sequence[str]) -> Iterator[ServerProcess]:
    """Start `seqmoe serve` on a free loopback port, and end it, whatever happens inside.

    `RuntimeError` with what it said where it does not begin to serve.
    """
    command = [sys.executable, "-m", "seqmoe", "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stderr=stream, env=child_environment(), start_new_session=True)
        try:
            yield ServerProcess(_address(process, log), process, log)
        finally:
            end_group(process)


def child_environment() -> dict[str, str]:
    """This environment for a child that speaks to loopback only and computes with one thread."""
    kept = {name: value for name, value in os.environ.items() if name.upper() not in _FOREIGN}
    return {"OMP_NUM_THREADS": "1", **kept}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, which leads a session of its own, with all that it started, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def resident_bytes(pid: int) -> int:
    """A process's resident memory, from /proc; ``ProcessLookupError`` for one that has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, IndexError):
        raise ProcessLookupError(f"process {pid} has ended") from None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if found := re.search(r" at (http://\S+:\d+)\s", log.read_text(errors="replace")):
            return found.group(1)
        if process.poll() is not None:
            raise RuntimeError(f"seqmoe serve ended with {process.returncode}: {log.read_text()[-_TAIL:].strip()}")
        time.sleep(0.05)
    raise RuntimeError(f"seqmoe serve did not begin within {_START_SECONDS:g} s: {log.read_text()[-_TAIL:].strip()}")
