"""How far a study is: a line per running cell and the time that is left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from seqmoe.harness.record import Status
from seqmoe.spec.duration import duration
from seqmoe.spec.study import StudyCell

# Start, reading the traces and evaluating, before any cell has told how long these take.
_OVERHEAD_SECONDS = 30.0
_LINE_SECONDS = 30.0


class Estimate:
    """Seconds that are left: every cell takes its budget and what others took beyond theirs, ``jobs`` at once.

    ``cells`` is how many there are in all.
    """

    def __init__(
        self,
        cells: Sequence[StudyCell] = (),
        jobs: int = 1,
        budget: Callable[[StudyCell], float] = lambda cell: 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cells, self.jobs = len(cells), max(1, jobs)
        self._left = {cell.key: budget(cell) for cell in cells}
        self._since: dict[str, float] = {}
        self._beyond: list[float] = []
        self._now = now

    def begin(self, cell: StudyCell) -> None:
        """A cell begins."""
        self._since[cell.key] = self._now()

    def end(self, cell: StudyCell, seconds: float) -> None:
        """A cell is over."""
        self._beyond.append(max(0.0, seconds - self._left.pop(cell.key, 0.0)))
        self._since.pop(cell.key, None)

    def seconds(self) -> float:
        """Seconds left: no less than the longest cell needs, nor than all of them spread over the cores."""
        beyond = sum(self._beyond) / len(self._beyond) if self._beyond else _OVERHEAD_SECONDS
        needs = [
            max(0.0, budget + beyond - (self._now() - self._since[key] if key in self._since else 0.0))
            for key, budget in self._left.items()
        ]
        return max(max(needs, default=0.0), sum(needs) / self.jobs)


class StudyProgress(Protocol):
    """Told of a study's cells as they begin and end; several are under way at a time."""

    def say(self, text: str) -> None:
        """Something takes a while before the first cell begins."""

    def start(self, estimate: Estimate) -> None:
        """The cells of ``estimate`` will be computed."""

    def begin(self, cell: StudyCell) -> None:
        """A cell begins."""

    def event(self, cell: StudyCell, words: str) -> None:
        """How far a cell is."""

    def end(self, cell: StudyCell, status: Status, words: str, seconds: float) -> None:
        """A cell has ended and its record is stored."""

    def stop(self) -> None:
        """The study is over, or was interrupted."""


class SilentProgress:
    """Says nothing."""

    def say(self, text: str) -> None:
        """Something takes a while."""

    def start(self, estimate: Estimate) -> None:
        """The study begins."""

    def begin(self, cell: StudyCell) -> None:
        """A cell begins."""

    def event(self, cell: StudyCell, words: str) -> None:
        """How far a cell is."""

    def end(self, cell: StudyCell, status: Status, words: str, seconds: float) -> None:
        """A cell has ended."""

    def stop(self) -> None:
        """The study is over."""


class PlainProgress:
    """One line when a cell ends, and now and then one on how far each is, for logs and pipes."""

    def __init__(self, stream: TextIO, every: float = _LINE_SECONDS) -> None:
        self._stream = stream
        self._every = every
        self._said: dict[str, float] = {}
        self._total = self._done = 0
        self._estimate = Estimate()

    def say(self, text: str) -> None:
        """Write it."""
        self._line(text)

    def start(self, estimate: Estimate) -> None:
        """Say how long it will take."""
        self._estimate = estimate
        self._total, self._done = estimate.cells, 0
        if self._total:
            beside = f", {estimate.jobs} at a time" if min(estimate.jobs, self._total) > 1 else ""
            noun = "cell" if self._total == 1 else "cells"
            self._line(f"{self._total} {noun}{beside}, about {duration(estimate.seconds())}")

    def begin(self, cell: StudyCell) -> None:
        """Nothing is written until there is something to tell."""
        self._estimate.begin(cell)
        self._said[cell.key] = time.monotonic()

    def event(self, cell: StudyCell, words: str) -> None:
        """Write how far the cell is, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._said.get(cell.key, 0.0) >= self._every:
            self._said[cell.key] = now
            left = self._estimate.seconds()
            # Beyond its budget nobody knows: rather nothing than "0 s left".
            self._line(f"  {cell.label}: {words}" + (f"; {duration(left)} left" if left >= 1 else ""))

    def end(self, cell: StudyCell, status: Status, words: str, seconds: float) -> None:
        """Write what came out."""
        self._done += 1
        self._estimate.end(cell, seconds)
        left = f", {duration(self._estimate.seconds())} left" if self._done < self._total else ""
        mark = "ok, " if status.ok else ""
        self._line(f"[{self._done}/{self._total}] {cell.label}: {mark}{words}, {duration(seconds)}{left}")

    def stop(self) -> None:
        """Nothing is left to clean up."""

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveProgress:
    """A line per running cell that says how far it is, and the time that is left; ended cells scroll above them."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._lines: dict[str, TaskID] = {}
        self._head: TaskID | None = None
        self._total = self._done = 0
        self._estimate = Estimate()

    def say(self, text: str) -> None:
        """Let it scroll."""
        self._bar.console.print(text, highlight=False, markup=False)

    def start(self, estimate: Estimate) -> None:
        """Show the first line."""
        self._estimate = estimate
        self._total, self._done = estimate.cells, 0
        self._head = self._bar.add_task("", total=None)
        self._show_head()
        self._bar.start()

    def begin(self, cell: StudyCell) -> None:
        """Give the cell a line."""
        self._estimate.begin(cell)
        self._lines[cell.key] = self._bar.add_task(f"{escape(cell.label)}: begins", total=None)

    def event(self, cell: StudyCell, words: str) -> None:
        """Change the cell's line."""
        self._bar.update(self._lines[cell.key], description=f"{escape(cell.label)}: {escape(words)}")
        self._show_head()

    def end(self, cell: StudyCell, status: Status, words: str, seconds: float) -> None:
        """Let what came out scroll away, and take the cell's line away."""
        self._done += 1
        self._estimate.end(cell, seconds)
        mark = "[green]ok[/]" if status.ok else f"[yellow]{status.kind}[/]"
        text = escape(f"{cell.label}: {words}, {duration(seconds)}")
        self._bar.console.print(f"{mark} {text}", highlight=False, soft_wrap=True)
        if cell.key in self._lines:
            self._bar.remove_task(self._lines.pop(cell.key))
        self._show_head()

    def stop(self) -> None:
        """Take the lines away."""
        self._bar.stop()

    def _show_head(self) -> None:
        if self._head is not None:
            left = duration(self._estimate.seconds())
            self._bar.update(self._head, description=f"{self._done} of {self._total} cells, {left} left")


def console_progress() -> StudyProgress:
    """Progress on standard error: live if that is a terminal, plain otherwise."""
    console = Console(stderr=True)
    return LiveProgress(console) if console.is_terminal else PlainProgress(sys.stderr)
