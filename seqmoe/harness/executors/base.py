"""What every executor gives: for each run, how it ended and what was observed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from seqmoe.harness.plan import Run
from seqmoe.harness.record import Observations, Status


@dataclass(frozen=True, slots=True)
class Outcome:
    """``started`` is UTC in ISO 8601, ``seconds`` wall time, the start of a worker included."""

    status: Status
    observations: Observations
    started: str
    seconds: float


class Executor(AbstractContextManager["Executor"], Protocol):
    """Carries out runs. Leaving the context ends every process that it started."""

    def execute(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Outcome]]:
        """Carry out runs as they are taken from ``runs``; a failed run is an outcome, never an exception."""
