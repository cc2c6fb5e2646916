"""Protects what a report is made from: several folders of results as one, nothing counted twice, the newest kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prediction_samples import fig8_records
from report_samples import cell, record

from seqmoe.harness import metrics
from seqmoe.harness.record import to_json
from seqmoe.harness.store import store_path
from seqmoe.harness.studies.record import to_line
from seqmoe.report.sources import read_results, require_folders


def write(folder: Path, suite: str, lines: list[str]) -> Path:
    path = store_path(folder, "cpu-example-2c", suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def test_a_copy_of_published_records_counts_once_and_the_newest_repeat_is_kept(tmp_path):
    old = record(cell(), 40.0)
    new = replace(record(cell(), 60.0), started="2026-01-02T00:00:00Z")
    other = record(cell(), 50.0, repeat=1)
    published = write(tmp_path / "published", "fig6", [to_json(old), to_json(other)])
    own = write(tmp_path / "results", "fig6", [to_json(new), to_json(old)])
    for folders in ([own, published], [published, own]):
        found = {one.repeat: metrics.decode_tok_s(one) for one in read_results(folders)}
        assert found == {0: pytest.approx(60.0), 1: pytest.approx(50.0)}
    # In one folder alone the order of writing counts.
    assert [metrics.decode_tok_s(one) for one in read_results([own])] == [pytest.approx(40.0)]


def test_a_study_that_stands_in_two_folders_counts_once(tmp_path):
    line = to_line(fig8_records()[0])
    folders = [write(tmp_path / name, "fig8", [line]) for name in ("a", "b")]
    assert len(read_results(folders)) == len(read_results(folders[:1])) == 1


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--results .*nowhere: no such folder"):
        require_folders([tmp_path, tmp_path / "nowhere"])
