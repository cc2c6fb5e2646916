"""Progress says what ended how, and the time that is left follows from what runs of the same kind took."""

from __future__ import annotations

import dataclasses
import io

import pytest
from harness_samples import cell, record
from rich.console import Console

from seqmoe.harness.plan import Run
from seqmoe.harness.progress import Estimate, LiveProgress, PlainProgress, SilentProgress, console_progress
from seqmoe.harness.record import Status

RUNS = [Run(cell(system=s), r, s) for r in range(2) for s in ("lru", "seqmoe")]


def took(run, seconds, status=None):
    item = record(system=run.cell.system, repeat=run.repeat)
    return dataclasses.replace(item, seconds=seconds, status=status or item.status)


def test_time_left_is_known_by_cell_then_group_then_any() -> None:
    estimate = Estimate(RUNS)
    assert estimate.seconds() is None
    estimate.end(RUNS[0], 10.0)
    assert estimate.seconds() == pytest.approx(30)
    estimate.end(RUNS[1], 2.0)
    assert estimate.seconds() == pytest.approx(12)
    estimate.end(RUNS[2], None)
    assert estimate.seconds() == pytest.approx(2)


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_every_ended_run_is_a_line_on_the_stream(kind) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=200)
    progress = PlainProgress(stream) if kind == "plain" else LiveProgress(console)
    progress.start(RUNS)
    progress.begin(RUNS[0])
    progress.end(RUNS[0], took(RUNS[0], 3.0))
    progress.begin(RUNS[1])
    progress.end(RUNS[1], took(RUNS[1], 3.0, Status("oom", "host: out of [memory]")))
    progress.skip(RUNS[2])
    progress.stop()
    text = stream.getvalue()
    assert "lru tiny 25% measured #1" in text and "200.0 tok/s" in text
    assert "oom" in text and "out of [memory]" in text


def test_plain_lines_count_and_tell_the_time_left() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.start(RUNS)
    for run in RUNS:
        progress.begin(run)
        progress.end(run, took(run, 60.0))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("[1/4] lru") and lines[0].endswith("60.0 s, 3 min left")
    assert lines[3].startswith("[4/4]") and "left" not in lines[3]


def test_without_a_terminal_lines_are_plain() -> None:
    assert isinstance(console_progress(), PlainProgress)
    SilentProgress().start(RUNS)
