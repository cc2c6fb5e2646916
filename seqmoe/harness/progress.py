"""How far a sweep is: a live bar with the time that is left on a terminal, one plain line per run elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from seqmoe.harness.metrics import Missing, decode_tok_s
from seqmoe.harness.plan import Run
from seqmoe.harness.record import Record
from seqmoe.spec.duration import duration


class ProgressReport(Protocol):
    """Told of a sweep's runs as they begin and end."""

    def start(self, runs: Sequence[Run]) -> None:
        """The sweep begins."""

    def begin(self, run: Run) -> None:
        """A run begins."""

    def end(self, run: Run, record: Record) -> None:
        """A run has ended and its record is stored."""

    def skip(self, run: Run) -> None:
        """A run is not needed any more: its cell has failed."""

    def stop(self) -> None:
        """The sweep is over, or was interrupted."""


class Estimate:
    """Seconds that are left, from what finished runs took: of the same cell, else of the same group, else of any."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._left = {(run.cell.key, run.repeat): run for run in runs}
        self._took: dict[str, list[float]] = {}

    def end(self, run: Run, seconds: float | None) -> None:
        """A run is over; ``seconds`` is None if it was not carried out."""
        self._left.pop((run.cell.key, run.repeat), None)
        if seconds is not None:
            for name in (run.cell.key, run.group, ""):
                self._took.setdefault(name, []).append(seconds)

    def seconds(self) -> float | None:
        """Seconds left, None before anything has finished."""
        if not self._took:
            return None
        return sum(self._expected(run) for run in self._left.values())

    def _expected(self, run: Run) -> float:
        known = next(self._took[name] for name in (run.cell.key, run.group, "") if name in self._took)
        return sum(known) / len(known)


class SilentProgress:
    """Says nothing."""

    def start(self, runs: Sequence[Run]) -> None:
        """The sweep begins."""

    def begin(self, run: Run) -> None:
        """A run begins."""

    def end(self, run: Run, record: Record) -> None:
        """A run has ended."""

    def skip(self, run: Run) -> None:
        """A run is not needed."""

    def stop(self) -> None:
        """The sweep is over."""


class PlainProgress:
    """One line per finished run, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = self._done = 0
        self._estimate = Estimate(())

    def start(self, runs: Sequence[Run]) -> None:
        """The sweep begins."""
        self._total, self._done, self._estimate = len(runs), 0, Estimate(runs)

    def begin(self, run: Run) -> None:
        """Nothing is written until the run has ended."""

    def end(self, run: Run, record: Record) -> None:
        """Write the run's line."""
        self._done += 1
        self._estimate.end(run, record.seconds)
        left = f", {duration(self._estimate.seconds())} left" if self._done < self._total else ""
        line = f"[{self._done}/{self._total}] {title(run)}: {describe(record)}, {record.seconds:.1f} s{left}"
        print(line, file=self._stream, flush=True)

    def skip(self, run: Run) -> None:
        """Count the run as over."""
        self._done += 1
        self._estimate.end(run, None)

    def stop(self) -> None:
        """Nothing is left to clean up."""


class LiveProgress:
    """A bar, the run that is going on, and the time that is left; finished runs scroll above it."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None, left="")
        self._estimate = Estimate(())

    def start(self, runs: Sequence[Run]) -> None:
        """Show the bar."""
        self._estimate = Estimate(runs)
        self._bar.update(self._task, total=len(runs))
        self._bar.start()

    def begin(self, run: Run) -> None:
        """Name the run beside the bar."""
        self._bar.update(self._task, description=escape(title(run)))

    def end(self, run: Run, record: Record) -> None:
        """Let the run's line scroll away and move the bar."""
        mark = "[green]ok[/]" if record.status.ok else f"[yellow]{record.status.kind}[/]"
        text = escape(describe(record).removeprefix("ok, "))
        self._bar.console.print(f"{mark} {escape(title(run))}: {text}", highlight=False, soft_wrap=True)
        self._advance(run, record.seconds)

    def skip(self, run: Run) -> None:
        """Move the bar."""
        self._advance(run, None)

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def _advance(self, run: Run, seconds: float | None) -> None:
        self._estimate.end(run, seconds)
        self._bar.update(self._task, advance=1, left=f"{duration(self._estimate.seconds())} left")


def console_progress() -> ProgressReport:
    """Progress on standard error: live if that is a terminal, plain otherwise."""
    console = Console(stderr=True)
    return LiveProgress(console) if console.is_terminal else PlainProgress(sys.stderr)


def title(run: Run) -> str:
    """Cell and repeat, repeats counted from 1 for people."""
    return f"{run.cell.label} #{run.repeat + 1}"


def describe(record: Record) -> str:
    """How a run ended, in a few words."""
    if not record.status.ok:
        return f"{record.status.kind}: {record.status.reason[:160]}"
    speed = decode_tok_s(record)
    return f"ok, {speed}" if isinstance(speed, Missing) else f"ok, {speed:.1f} tok/s"
