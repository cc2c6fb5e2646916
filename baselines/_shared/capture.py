"""Capture of what C++ libraries write to stderr in this process, while it still reaches the real stderr."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Copy file descriptor 2 into a file while the block runs; the yielded function reads it, in full after the block.

    The copying is done by ``tee`` in a process of its own, so that the last words of a crashing worker come through.
    """
    original = os.dup(2)
    with tempfile.TemporaryDirectory(prefix="seqmoe-log-") as folder:
        log = Path(folder) / "stderr"
        text: str | None = None
        tee = subprocess.Popen(["tee", str(log)], stdin=subprocess.PIPE, stdout=original)
        assert tee.stdin is not None
        os.dup2(tee.stdin.fileno(), 2)
        tee.stdin.close()

        def read() -> str:
            return log.read_text(encoding="utf-8", errors="replace") if text is None else text

        try:
            yield read
        finally:
            os.dup2(original, 2)
            os.close(original)
            tee.wait()
            text = log.read_text(encoding="utf-8", errors="replace")
