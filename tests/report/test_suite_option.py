"""Protects the choice of a suite: one is reported, and a name that nothing bears is refused with the nearest."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from report_samples import HOME, NEEDS_GPU, cell, record

from seqmoe import __main__ as command
from seqmoe.harness.record import to_json
from seqmoe.harness.store import store_path


@pytest.fixture
def report(tmp_path, monkeypatch, capsys):
    """Run `seqmoe report` on records of fig6 and of an own suite; returns exit code, stdout, stderr."""
    for name, panel, speed in (("fig6", "decode-short", 50.0), ("mine", "my-panel", 70.0)):
        path = store_path(tmp_path / "results", "cpu-example-2c", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        point = cell(suite=name, panel=panel)
        obstacle = record(point, status=NEEDS_GPU)
        path.write_text("".join(to_json(item) + "\n" for item in (record(point, speed), obstacle)))

    def run(*arguments):
        monkeypatch.chdir(HOME.declarations)
        folders = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", ["seqmoe", "report", *folders, "--json", *arguments])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        printed = capsys.readouterr()
        return stopped.value.code, printed.out, printed.err

    return run


@pytest.mark.parametrize(("arguments", "speed"), [((), 50.0), (("--suite", "mine"), 70.0)])
def test_the_suite_that_was_asked_for_is_reported_and_an_obstacle_takes_no_result(report, arguments, speed) -> None:
    code, out, _ = report(*arguments)
    assert code == 0
    with Path(json.loads(out.splitlines()[-1])["csv"]).open(encoding="utf-8") as stream:
        (row,) = [row for row in csv.DictReader(stream) if row["lane"] == "measured"]
    assert row["status"] == "ok" and float(row["tok_s"]) == pytest.approx(speed, rel=1e-6)


def test_a_suite_that_nothing_bears_is_refused_with_the_nearest(report) -> None:
    code, _, err = report("--suite", "mime")
    assert code == 2 and "--suite mime: " in err and "did you mean 'mine'?" in err
