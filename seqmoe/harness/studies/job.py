"""The child process of a cell: ``python -m seqmoe.harness.studies.job`` reads one request, and writes events.

Request and events are JSON lines. The request has ``study``, ``cell``, ``source`` (where the traces are), ``work`` (a
folder for what an interrupted cell can go on from) and ``keep`` (a file for what is worth keeping). Events are
``progress``, ``result`` with the ``observations``, and last ``done`` or ``error`` with ``kind``, ``reason``, ``hint``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from seqmoe.spec.errors import InputError

Emit = Callable[[dict[str, Any]], None]


class Compute(Protocol):
    """What computes a cell: the function ``compute`` of a `StudyKind`'s module."""

    def __call__(self, request: dict[str, Any], progress: Emit) -> dict[str, Any]:
        """The observations of the request's cell, as plain JSON; raises `InputError` for what cannot be computed."""


def main() -> None:
    """Compute one cell; the process ends when whoever asked does, too."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no event

    def emit(event: dict[str, Any]) -> None:
        print(json.dumps(event, allow_nan=False), file=events, flush=True)

    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer(json.loads(line), emit)


def answer(request: dict[str, Any], emit: Emit) -> None:
    """Compute a request and tell the outcome; what is raised but is no fault of the input ends the process."""
    from seqmoe.harness.studies.kinds import KINDS

    compute: Compute = import_module(KINDS[request["study"]].module).compute
    try:
        observations = compute(request, lambda event: emit({"event": "progress", **event}))
    except InputError as error:
        emit({"event": "error", "kind": "unsupported", "reason": str(error)})
        return
    emit({"event": "result", "observations": observations})
    emit({"event": "done"})


def _end_with_parent() -> None:
    """Standard input ends when the parent closes it, or dies in whatever way."""
    while os.read(0, 4096):
        continue
    os._exit(0)


if __name__ == "__main__":
    main()
