"""What every executor gives: for each run, how it ended and what was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from seqmoe.harness.plan import Run
from seqmoe.harness.record import Observations, Status

# Asked right before a run begins: whether it still is to be carried out.
Needed = Callable[[Run], bool]


def always(run: Run) -> bool:
    """Every run is carried out."""
    return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """``started`` is UTC in ISO 8601, ``seconds`` wall time, the start of a worker included.

    ``environment`` is that of another machine which carried the run out; None for this one.
    """

    status: Status
    observations: Observations
    started: str
    seconds: float
    environment: Mapping[str, Any] | None = None


class Executor(AbstractContextManager["Executor"], Protocol):
    """Carries out runs. Leaving the context ends every process that it started."""

    def execute(self, runs: Iterable[Run], needed: Needed = always) -> Iterator[tuple[Run, Outcome]]:
        """Carry out the runs that are still ``needed``; a failed run is an outcome, never an exception.

        An executor of one machine keeps their order.
        """
