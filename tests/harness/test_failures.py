"""A sweep says which cells failed, and the command that tries one again does so."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from harness_samples import FakeLauncher, cell, record

from seqmoe import __main__ as command
from seqmoe.harness.executors import site
from seqmoe.harness.failures import failed_cells, failure_line, obstacle_lines
from seqmoe.harness.record import Status

A, B, C = (cell(residency=share) for share in (0.25, 0.5, 0.75))


@pytest.mark.parametrize(
    ("tried", "words"),
    [
        (set(), "2 cells failed earlier: "),
        ({C.key}, "2 cells failed earlier: "),
        ({A.key}, "2 cells failed, 1 of them earlier: "),
        ({A.key, B.key}, "2 cells failed: "),
    ],
)
def test_failures_of_earlier_sweeps_are_told_from_those_of_this_one(tried, words) -> None:
    line = failure_line([A, B], tried, "demo", "quick")
    assert line == f"{words}`seqmoe bench demo --no-resume --only {A.key}` tries one again"
    assert failure_line([], tried, "demo", "quick") == ""


def test_the_command_names_what_decides_the_cells() -> None:
    line = failure_line([A], (), "my suite.toml", "full", ["--seed", "3"])
    assert line.startswith("1 cell failed earlier: `seqmoe bench 'my suite.toml' --profile full --seed 3 --no-resume")


def test_an_obstacle_or_a_later_result_is_no_failure() -> None:
    crash, absent = Status("crash", "r"), Status("not_installed", "r")
    records = [
        record(status=crash, residency=0.25),
        record(status=absent, residency=0.5),
        record(status=crash, residency=0.75),
        record(residency=0.75),
    ]
    cells = [item.cell for item in records[:3]]
    assert failed_cells(cells, records) == (cells[0],)


def test_what_could_not_start_is_told_by_its_reason_the_most_frequent_first() -> None:
    no_gpu, no_traces = Status("unsupported", "needs a GPU"), Status("not_installed", "the traces are not here")
    statuses = [no_traces, no_gpu, no_gpu, Status("crash", "r"), Status("ok")]
    assert obstacle_lines(statuses) == [f"2 not run: {no_gpu}", f"1 not run: {no_traces}"]
    assert obstacle_lines(statuses, most=1)[1:] == ["1 more not run, for 1 other reasons"]
    assert obstacle_lines(statuses[3:]) == []


def test_bench_counts_failed_cells_and_its_own_advice_works(home, monkeypatch, capsys) -> None:
    monkeypatch.chdir(home.work)
    behaviour = {"lru": "oom"}
    monkeypatch.setattr(site, "HomeLauncher", lambda home, environment, replays: FakeLauncher(home, behaviour))

    def bench(*arguments):
        monkeypatch.setattr(sys, "argv", ["seqmoe", "bench", *arguments, "--json"])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        printed = capsys.readouterr()
        assert stopped.value.code == 0
        return json.loads(printed.out.splitlines()[-1]), printed.err

    counts, words = bench("demo")
    assert counts["failed"] == len(counts["failed_cells"]) == 2 and "2 cells failed: `" in words
    counts, words = bench("demo")
    assert (counts["failed"], counts["written"]) == (2, 0) and "2 cells failed earlier: `" in words
    behaviour.clear()
    advice = shlex.split(words.split("`")[1])
    counts, words = bench(*advice[2:])
    assert (counts["failed"], counts["written"], counts["cells"]) == (0, 2, 1) and "tries one again" not in words
    assert bench("demo")[0]["failed"] == 1
