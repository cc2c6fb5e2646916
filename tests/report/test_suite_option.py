"""Protects what a report is asked for by name: a suite is reported alone, and a wrong name is refused at once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from report_samples import HOME, NEEDS_GPU, cell, record

from seqmoe.harness.record import to_json
from seqmoe.harness.store import store_path
from seqmoe.report import sources


@pytest.fixture
def report(tmp_path, monkeypatch, seqmoe):
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
        return seqmoe("report", *folders, "--json", *arguments)

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


def test_a_picture_or_a_folder_that_cannot_be_is_refused_before_anything_is_read(report, tmp_path, monkeypatch) -> None:
    def read(folders):
        raise AssertionError("read before it was checked")

    monkeypatch.setattr(sources, "read_results", read)
    (file := tmp_path / "site").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for arguments, said in (
        (("--png", "figure66"), "--png figure66: no figure of a report; did you mean 'figure6'?"),
        (("--png", "figure6,nope"), "--png nope: no figure of a report; valid: figure1, figure2"),
        (("--out", str(file)), f"--out {file}: {file} is there and is no folder"),
        (("--out", str(file / "inner")), f"--out {file / 'inner'}: {file} is there and is no folder"),
        (("--out", str(tmp_path / "dangling")), "dangling is there and is no folder"),
    ):
        code, out, err = report(*arguments)
        assert (code, out) == (2, "") and said in err, arguments
        assert len(err.splitlines()) == 1
    assert file.read_text() == "mine"
