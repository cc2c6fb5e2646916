"""How far a collection is: a live bar on a terminal, now and then one plain line elsewhere, both on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from seqmoe.spec.duration import duration

_PLAIN_EVERY = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class CollectionProgress:
    """Of ``requests`` that this process has to make, ``done`` are finished; those under way count by their share.

    ``tokens`` were generated since the start, ``seconds_left`` is None before anything was done.
    """

    stage: str
    requests: int
    done: float
    tokens: int
    seconds: float
    seconds_left: float | None


Report = Callable[[CollectionProgress], None]


@dataclass(slots=True)
class Meter:
    """Counts, and tells ``report``."""

    requests: int
    report: Report | None
    _done: float = 0
    _tokens: int = 0
    _start: float = field(default_factory=time.monotonic)

    def tell(self, stage: str, part: float = 0, tokens: int = 0) -> None:
        """``part`` requests and ``tokens`` beyond those counted are under way."""
        if self.report is None:
            return
        done, seconds = self._done + part, time.monotonic() - self._start
        left = seconds * (self.requests - done) / done if done else None
        self.report(CollectionProgress(stage, self.requests, done, self._tokens + tokens, seconds, left))

    def add(self, requests: float, tokens: int = 0) -> None:
        """Count what is finished."""
        self._done += requests
        self._tokens += tokens


@contextmanager
def console_progress(title: str) -> Iterator[Report]:
    """A `Report` that shows progress on standard error: live if that is a terminal, plain lines otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(title, total=None, state="")

    def report(now: CollectionProgress) -> None:
        bar.start()  # only now: of several processes one reports
        bar.update(task, total=now.requests, completed=now.done, state=describe(now))

    try:
        yield report
    finally:
        bar.stop()


def describe(now: CollectionProgress) -> str:
    """Requests, tokens and the time that is left, in a few words."""
    left = "" if now.seconds_left is None else f", {duration(now.seconds_left)} left"
    return f"{now.stage}, {int(now.done + 1e-6)} of {now.requests} requests, {now.tokens:,} tokens{left}"


def _plain(title: str) -> Report:
    last = time.monotonic() - _PLAIN_EVERY

    def report(now: CollectionProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_EVERY or now.stage == "done":
            last = time.monotonic()
            print(f"{title}: {describe(now)}", file=sys.stderr, flush=True)

    return report
