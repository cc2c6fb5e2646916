"""Figures 4 and 9: medians of what was recorded, the paper beside it, and reasons where nothing ran."""

from __future__ import annotations

import numpy as np
import pytest
from report_samples import HOME, record

from seqmoe.harness.record import Status
from seqmoe.report import style
from seqmoe.report.figure4 import Figure4
from seqmoe.report.figure9 import Figure9
from seqmoe.report.paper import claims
from seqmoe.report.parts import part4, part9
from seqmoe.report.stacks import PARTS
from seqmoe.report.writer import write_report
from seqmoe.spec.suite import load_suite

MODES = load_suite(HOME.suites / "fig4.toml").cells("quick")
STEPS = load_suite(HOME.suites / "fig9.toml").cells("quick")
SHARES = {"computation": 0.5, "predictor": 0.2, "management": 0.05, "stall": 0.24, "other": 0.01}


def executions(repeats=8, graph=None):
    speed = {"eager": 100.0, "sync": 150.0, "graph": 900.0}
    records = []
    for repeat in range(repeats):
        for point in MODES:
            status = graph if point.execution == "graph" else None
            records.append(record(point, speed[point.execution] * (1 + 0.01 * repeat), repeat, status=status))
    return records


def steps(other=0.01):
    found = []
    for repeat, scale in enumerate((1.0, 2.0, 3.0)):
        for point in STEPS:
            stats = {f"{part}_seconds": scale * share for part, share in (SHARES | {"other": other}).items()}
            if point.system != "seqmoe":
                stats["predictor_seconds"] = 0.0
            elif point.predictor == "mamba2":
                stats["predictor_pytorch_seconds"] = 0.7 * scale
            found.append(record(point, repeat=repeat, stats=stats | {"timed_steps": 100, "hit_rate": 0.9}))
    return found


def test_every_mode_has_its_median_and_the_word_faster_its_rule() -> None:
    figure = Figure4(executions(), claims(HOME))
    assert [row.mode for row in figure.rows] == ["eager", "sync", "graph"]
    assert figure.rows[0].summary.median == pytest.approx(103.5, rel=1e-3)
    words = figure.sentences()
    assert words[0].startswith("Sync is faster than Eager here: 1.50 times") and "1.44" in words[0]
    assert "Graph is faster than Sync" in words[1] and "Qwen3-30B-A3B-FP8 1.64" in words[1]
    few = Figure4(executions(repeats=2), claims(HOME)).sentences()
    assert "not to be called faster" in few[0]


def test_a_mode_that_cannot_run_says_what_it_needs() -> None:
    figure = Figure4(executions(2, graph=Status("unsupported", "needs a GPU")), claims(HOME))
    assert figure.sentences()[-1] == "Graph: unsupported(needs a GPU)."
    assert figure.table().set_index("mode").loc["graph", "reason"].iloc[0] == "unsupported(needs a GPU)"


def test_the_papers_modes_are_those_of_its_text() -> None:
    printed = Figure4([], claims(HOME)).printed()
    assert printed["GPT-OSS-120B-MXFP4"] == {"eager": 68.6, "sync": 91.7, "graph": 175.7}
    assert set(printed) == {"Qwen3-30B-A3B-FP8", "GPT-OSS-120B-MXFP4"}


def test_shares_are_of_a_steps_parts_and_add_up() -> None:
    figure = Figure9(steps(), claims(HOME))
    assert len(figure.rows) == len(STEPS)
    row = next(row for row in figure.rows if row.title == "SeqMoE, Mamba2" and row.residency == 0.45)
    assert row.shares == pytest.approx(SHARES) and sum(row.shares.values()) == pytest.approx(1)
    assert row.step_seconds == pytest.approx(0.02)
    assert row.pytorch == pytest.approx(0.7) and row.times == pytest.approx(3.5)
    assert figure.rows[-1].title == "FullLoad"
    cheap = next(row for row in figure.rows if row.title == "SeqMoE, first-order")
    assert np.isnan(cheap.pytorch)


def test_parts_are_those_of_the_middle_repeat_and_so_add_up() -> None:
    point = next(cell for cell in STEPS if cell.system == "seqmoe")
    # Parts whose medians, taken each by itself, would come from three repeats and not add up.
    kinds = [{"computation": 3, "stall": 1}, {"computation": 1, "stall": 5}, {"computation": 2, "management": 3}]
    repeats = [
        record(
            point, repeat=at, stats={f"{part}_seconds": float(kind.get(part, 0)) for part in PARTS} | {"timed_steps": 1}
        )
        for at, kind in enumerate(kinds)
    ]
    (row,) = Figure9(repeats, claims(HOME)).rows
    assert (row.step_seconds, row.repeats) == (5, 3)
    assert row.shares == {"computation": 0.4, "predictor": 0, "management": 0.6, "stall": 0, "other": 0}
    (row,) = Figure9(repeats[1:], claims(HOME)).rows
    assert row.step_seconds == 5, "of an even number the shorter of the middle two"


def test_words_set_ours_beside_the_papers_and_name_what_is_in_no_part() -> None:
    first, second = Figure9(steps(), claims(HOME)).sentences()
    assert "20.00% + management 5.00% = 25.0%" in first and "3.46% + 2.05%" in first
    assert "3.5 times as long" in second and "70.0% of this step" in second
    assert "is in no part" in Figure9(steps(other=0.2), claims(HOME)).sentences()[-1]


def test_the_papers_bars_are_whole() -> None:
    printed = Figure9([], claims(HOME)).printed()
    assert len(printed) == 4 and all(set(bar.shares) == set(PARTS) - {"other"} for bar in printed)
    assert all(sum(bar.shares.values()) == pytest.approx(1, abs=0.002) for bar in printed)


def test_records_without_timers_are_no_bars() -> None:
    assert Figure9([record(STEPS[0])], claims(HOME)).rows == []


@pytest.mark.parametrize(("part", "records"), [(part4, executions), (part9, steps)])
def test_parts_have_a_section_a_sheet_a_table_and_survive_being_empty(part, records) -> None:
    for given in (records(), []):
        found = part(given, HOME)
        assert found.drawn == bool(given) == found.section.recorded
        assert ("Nothing was run yet" in found.section.body) == (not given)
        with style.theme():
            assert found.sheet().axes
        assert (found.data()["lane"] == "paper").any()


def test_the_writer_draws_them_under_their_own_numbers(tmp_path) -> None:
    report = write_report([*executions(2), *steps()], HOME, tmp_path)
    assert {"4", "9"} <= set(report.figures) and (tmp_path / "figure9.png").is_file()
    assert "What the way of execution costs" in report.page_of("4").read_text()
    assert "Where the time of a decode step goes" in report.page_of("9").read_text()


def test_replayed_suites_stand_in_figure_6_unless_asked_for_alone(tmp_path) -> None:
    cells = load_suite(HOME.suites / "emulated.toml").cells("quick")
    records = [
        record(cell, 50.0 + 10 * cell.residency + 100 * (cell.system == "full"), stats={"overlap_ratio": 0.7})
        for cell in cells
    ]
    for asked in (None, "emulated"):
        report = write_report(records, HOME, tmp_path, asked)
        assert "SeqMoE, previous token" in report.page_of("6").read_text()
        assert len(report.parts[list(dict.fromkeys(p.figure for p in report.parts)).index("6")].records) == len(records)
