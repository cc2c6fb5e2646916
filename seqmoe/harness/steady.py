"""Cold and steady: when a run settled, its figures before and since, and gaps that stand out. Pure, over records.

A run is steady once two windows in a row agree within 5 %, in their inter-token latency and in their hit rate; it is
judged by latency alone where the system tells no hit rate by windows. A window never spans two prompts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import PromptObservation, Record
from seqmoe.runtime.meter import WINDOW_STEPS

AGREEMENT = 0.05
# Tukey's fence for what lies far out, and how much longer than usual a gap must be at least.
_FENCE, _LEAST = 3.0, 1.5


@dataclass(frozen=True, slots=True)
class Window:
    """Decode steps in a row: how long one takes, tokens and seconds of all; needed experts and hits where told."""

    itl_s: float
    tokens: int
    seconds: float
    needed: int | None = None
    hits: int | None = None

    @property
    def hit_rate(self) -> float | None:
        """Expert hit rate, None where it is not known."""
        return self.hits / self.needed if self.needed and self.hits is not None else None

    def agrees(self, other: Window) -> bool:
        """Whether latency and, where both tell it, hit rate are within 5 % of each other."""
        if not _close(self.itl_s, other.itl_s):
            return False
        if self.hit_rate is None or other.hit_rate is None:
            return True
        return _close(self.hit_rate, other.hit_rate)


@dataclass(frozen=True, slots=True)
class Settled:
    """A run's windows, those before it was steady and those since; ``steady`` is empty if it never was."""

    cold: tuple[Window, ...]
    steady: tuple[Window, ...]


_Rate: TypeAlias = Callable[[Sequence[Window]], float | Missing]


def settled(record: Record) -> Settled | Missing:
    """Cut a record where two windows in a row agree for the first time: the second of them is the first steady one."""
    if not record.status.ok:
        return Missing(str(record.status))
    windows = _windows(record)
    if len(windows) < 2:
        return Missing(f"{len(windows)} whole windows of {_steps(record)} decode steps; two are needed")
    for index, (before, now) in enumerate(itertools.pairwise(windows), start=1):
        if before.agrees(now):
            return Settled(tuple(windows[:index]), tuple(windows[index:]))
    return Settled(tuple(windows), ())


def steady_decode_tok_s(record: Record) -> float | Missing:
    """Decode throughput since the run was steady."""
    return _part(record, steady=True, rate=_throughput)


def cold_decode_tok_s(record: Record) -> float | Missing:
    """Decode throughput until the run was steady."""
    return _part(record, steady=False, rate=_throughput)


def steady_hit_rate(record: Record) -> float | Missing:
    """Expert hit rate since the run was steady."""
    return _part(record, steady=True, rate=_hit_rate)


def cold_hit_rate(record: Record) -> float | Missing:
    """Expert hit rate until the run was steady."""
    return _part(record, steady=False, rate=_hit_rate)


def warm_up(record: Record, name: str) -> float | Missing:
    """What the warm-up before the run gave: ``decode_tok_s``, ``ttft_s`` or ``hit_rate``, in the worker's own time."""
    table = record.observations.stats.get("warmup")
    value = table.get(name) if isinstance(table, dict) else None
    return float(value) if isinstance(value, (int, float)) else Missing("the system reports no warm-up")


def outlying_gaps(record: Record) -> tuple[float, ...]:
    """Inter-token gaps, in seconds, that lie far above the others of the record; longest first."""
    gaps = np.concatenate([np.diff(times) for times in _step_times(record)] or [np.empty(0)]) / 1e9
    if len(gaps) < 4:
        return ()
    quarter, median, three = np.percentile(gaps, [25, 50, 75])
    limit = max(three + _FENCE * (three - quarter), _LEAST * median)
    return tuple(sorted((float(gap) for gap in gaps if gap > limit), reverse=True))


def outlier_note(records: Sequence[Record]) -> str:
    """One sentence on the gaps that stand out in the repeats of a cell, empty where none do."""
    found = [gap for record in records if record.status.ok for gap in outlying_gaps(record)]
    if not found:
        return ""
    total = sum(len(times) - 1 for record in records if record.status.ok for times in _step_times(record))
    return f"{len(found)} of {total} gaps stand out, the longest {1e3 * max(found):.3g} ms"


def _part(record: Record, steady: bool, rate: _Rate) -> float | Missing:
    found = settled(record)
    if isinstance(found, Missing):
        return found
    windows = found.steady if steady else found.cold
    return rate(windows) if windows else Missing("no two windows in a row agree within 5 %")


def _throughput(windows: Sequence[Window]) -> float | Missing:
    seconds = sum(window.seconds for window in windows)
    return sum(window.tokens for window in windows) / seconds if seconds > 0 else Missing("the windows took no time")


def _hit_rate(windows: Sequence[Window]) -> float | Missing:
    needed = sum(window.needed or 0 for window in windows)
    if not needed:
        return Missing("the system tells no hit rate by windows")
    return sum(window.hits or 0 for window in windows) / needed


def _windows(record: Record) -> list[Window]:
    steps, told = _steps(record), _told(record)
    found: list[Window] = []
    for times in _step_times(record):
        for start in range(0, len(times) - steps, steps):
            chosen = times[start : start + steps + 1]
            needed, hits = told[len(found)] if len(found) < len(told) else (None, None)
            gaps = np.diff(chosen) / 1e9
            tokens = steps * record.cell.batch
            found.append(Window(float(np.median(gaps)), tokens, float(gaps.sum()), needed, hits))
    return found


def _steps(record: Record) -> int:
    table = record.observations.stats.get("windows")
    steps = table.get("steps") if isinstance(table, dict) else None
    # Ours where the system does not say what its own are.
    return steps if isinstance(steps, int) and steps > 0 else WINDOW_STEPS


def _told(record: Record) -> list[tuple[int, int]]:
    table = record.observations.stats.get("windows")
    if not isinstance(table, dict):
        return []
    return list(zip(table.get("needed", ()), table.get("hits", ()), strict=False))


def _step_times(record: Record) -> Iterator[NDArray[np.int64]]:
    """Of each prompt, or batch of prompts, the time at which every step had ended, in nanoseconds."""
    prompts: tuple[PromptObservation, ...] = record.observations.prompts
    batch = record.cell.batch
    for start in range(0, len(prompts), batch):
        yield np.max([prompt.token_ns for prompt in prompts[start : start + batch]], axis=0).astype(np.int64)


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= AGREEMENT * max(a, b)
