"""Figure 1: one lane, the paper's ticks, sizes by arithmetic, and what has not run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from seqmoe.harness.record import Observations, PromptObservation, Record, Status
from seqmoe.report import style
from seqmoe.report.figure1 import Figure1
from seqmoe.report.paper import claims
from seqmoe.report.writer import write_report
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.spec.suite import Cell, load_suite

HOME = find_home(Path(__file__).parent)
MODEL = load_model(HOME, "qwen3-30b-a3b-fp8")
CELLS = load_suite(HOME.suites / "fig1.toml").cells("quick")
SPEEDS = {"full": 122.0, "naive": 2.0, "MoE-Infinity": 10.0, "llama.cpp": 30.0, "KTransformers": 33.0, "seqmoe": 100.0}


def record(cell: Cell, tok_s: float = 0.0, status: Status | None = None) -> Record:
    step = round(1e9 / tok_s) if tok_s else 1
    times = tuple(index * step for index in range(cell.decode_tokens))
    prompts = (PromptObservation(0, times, (None,) * len(times)),) * cell.prompts
    seen = Observations() if status else Observations(prompts, {})
    environment = {"host": "here", "cpu": {"model": "x"}}
    return Record(1, cell, cell.key, 0, status or Status("ok"), seen, environment, "2026-11-30T00:00:00+00:00", 0.0)


def simulated() -> list[Record]:
    return [record(dataclasses.replace(cell, prompts=1, decode_tokens=3), SPEEDS[cell.system]) for cell in CELLS]


def figure(records: list[Record]) -> Figure1:
    return Figure1(records, claims(HOME), MODEL)


def test_every_printed_system_is_a_cell_and_has_its_tick() -> None:
    found = figure(simulated())
    assert {row.title for row in found.rows} == set(found.printed()) and found.rows[0].title == "FullLoad"
    assert {row.title: row.printed for row in found.rows} == found.printed()
    assert {row.lane for row in found.rows} == {"simulated"}
    assert found.sentences()[0] == "SeqMoE has 82% of full load (simulated); the paper prints 85%."
    assert "input of the simulator" in found.sentences()[1]


def test_bars_are_hatched_and_the_ticks_are_where_the_paper_has_them() -> None:
    found = figure(simulated())
    with style.theme():
        axes = Figure().subplots()
        tips = found.draw_speeds(axes)
    assert len(axes.patches) == 6 and {patch.get_hatch() for patch in axes.patches} == {"////"}
    ticks = [float(line.get_ydata()[0]) for line in axes.lines]  # type: ignore[arg-type,index]
    assert ticks == [row.printed for row in found.rows]
    assert tips["tip-0"] == "FullLoad: 122.0 tok/s, simulated; the paper prints 122.7"


def test_a_measurement_takes_the_place_of_what_was_simulated() -> None:
    cell = dataclasses.replace(CELLS[0], lane="measured", hardware="host", prompts=1, decode_tokens=3)
    found = figure([*simulated(), record(cell, 110.0)])
    assert [(row.title, row.lane) for row in found.rows] == [("FullLoad", "measured")]


def test_what_failed_is_a_cross_with_its_reason() -> None:
    records = simulated()
    records[1] = record(records[1].cell, status=Status("unsupported", "no such kernel"))
    found = figure(records)
    failed = next(row for row in found.rows if not row.tok_s)
    assert "no such kernel" in failed.reason
    with style.theme():
        tips = found.draw_speeds(Figure().subplots())
    assert any("no such kernel" in tip for tip in tips.values())


def test_sizes_are_arithmetic() -> None:
    sizes = {size.name: (size.gigabytes, size.printed) for size in figure([]).sizes()}
    assert sizes["All experts"] == (pytest.approx(48 * 128 * 4_718_592 / 1e9), 29.0)
    assert sizes["Active experts"] == (pytest.approx(48 * 8 * 4_718_592 / 1e9), 1.8)
    assert sizes["Non-experts"][1] == 2.2


def test_the_report_has_the_figure_with_and_without_records(tmp_path: Path) -> None:
    written = write_report(simulated(), HOME, tmp_path, "fig1")
    assert written.figures["1"].png.is_file() and "100.0" in written.page_of("1").read_text(encoding="utf-8")
    assert len(written.figures["1"].csv.read_text().splitlines()) == 1 + 6 + 3
    empty = write_report([], HOME, tmp_path / "empty", "fig1")
    assert "Nothing was run yet" in empty.page_of("1").read_text(encoding="utf-8")
