"""Protects the simulated figure: the paper's grid, our bars with its values as ticks, crosses, and no other lane."""

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure
from report_samples import HOME, cell, record

from seqmoe.harness.record import Status
from seqmoe.report import style
from seqmoe.report.drawing import Look, draw
from seqmoe.report.figure6_simulated import Figure6Simulated
from seqmoe.report.frame import records_frame
from seqmoe.report.panel import Panel
from seqmoe.report.paper import figure6_bars
from seqmoe.report.parts import part6, part6_simulated
from seqmoe.report.summary import summarise

MODEL, GPU = "qwen3-30b-a3b-fp8", "rtx4090"
BARS = figure6_bars(HOME)


def simulated(system: str, residency: float, tok_s: float = 50.0, status: Status | None = None, **changes):
    point = cell(system=system, residency=residency, model=MODEL, hardware=GPU, lane="simulated", **changes)
    return record(point, tok_s, status=status)


RECORDS = [
    simulated("full", 1.0, 122.0),
    simulated("seqmoe", 0.45, 95.0),
    simulated("lru", 0.45, 60.0),
    simulated("FreeToken", 0.45, status=Status("unsupported", "the paper has a cross here")),
]


def figure_of(records) -> Figure6Simulated:
    return Figure6Simulated(summarise(records_frame(records, HOME)), BARS, HOME)


def bar(panel: Panel, system: str, x: float):
    return panel.bars[(panel.bars["system"] == system) & (panel.bars["x"] == x)].iloc[0]


def test_the_grid_is_the_papers_with_our_bars_and_its_values_as_ticks():
    grid = figure_of(RECORDS).grid()
    assert [len(row.panels) for row in grid] == [4, 4, 4, 4]
    panel = grid[0].panels[0]
    assert (panel.title, panel.note, panel.lane) == ("Qwen3-30B-A3B-FP8", "RTX 4090", "simulated")
    assert panel.full == pytest.approx(122.0) and "LRU (FreeToken's policy)" not in panel.systems
    assert bar(panel, "SeqMoE", 0.45)["value"] == pytest.approx(95.0)
    assert panel.printed["SeqMoE", 0.45] == 104.1 and ("FreeToken", 0.45) not in panel.printed
    assert bar(panel, "FreeToken", 0.45)["status"] == "unsupported"
    # What was not simulated is there for its tick alone, and is no mark of a failure.
    alone = bar(panel, "llama.cpp", 0.15)
    assert math.isnan(alone["value"]) and alone["status"] == "" and panel.statuses == {"unsupported"}
    assert {panel.lane for row in grid for panel in row.panels} == {"simulated", "paper"}


def test_what_the_paper_does_not_have_stands_in_panels_of_its_own():
    (panel,) = figure_of(RECORDS).beyond()
    assert set(panel.systems) == {"LRU (FreeToken's policy)", "SeqMoE"} and not panel.printed
    other = simulated("seqmoe", 0.45, 95.0, panel="decode-long")
    moved = record(cell(system="seqmoe", residency=0.45, model=MODEL, hardware="h200", lane="simulated"), 70.0)
    assert figure_of([other]).beyond() == []
    assert [panel.note.split(",")[0] for panel in figure_of([moved]).beyond()] == ["H200"]
    assert {panel.lane for row in figure_of([moved]).grid() for panel in row.panels} == {"paper"}


def test_a_cell_that_two_hosts_simulated_is_drawn_once():
    again = record(RECORDS[1].cell, 96.0, host="another-host")
    panel = figure_of([*RECORDS, again]).grid()[0].panels[0]
    assert (panel.bars["system"] == "SeqMoE").sum() == 4 and bar(panel, "SeqMoE", 0.45)["value"] == pytest.approx(96.0)


def test_a_tick_is_drawn_where_it_is_printed_and_told_with_the_bar():
    panel = figure_of(RECORDS).grid()[0].panels[0]
    with style.theme():
        figure = Figure()
        axes = figure.subplots()
        tips = draw(panel, axes, look=Look(values=False, heading=False))
    ticks = [line for line in axes.lines if line.get_color() == style.INK and line.get_linewidth() > 2]
    assert sorted({line.get_ydata()[0] for line in ticks}) == sorted(set(panel.printed.values()))
    assert len(ticks) == len(panel.printed) and axes.get_title(loc="left") == ""
    assert "SeqMoE, 45% of the experts: 95.00 Decode (tok/s); the paper prints 104.1" in tips.values()
    assert any(tip.startswith("llama.cpp") and "not run; the paper prints" in tip for tip in tips.values())


def test_simulated_cells_are_on_their_own_page_only():
    observed, virtual = part6(RECORDS, HOME), part6_simulated(RECORDS, HOME)
    assert not observed.section.recorded and virtual.section.recorded and virtual.table is None
    assert "hatched bar" not in observed.section.body and "Every cell" in virtual.section.body
    assert len(observed.short.rows) == len(RECORDS)
    assert virtual.section.name == "figure6-simulated" and virtual.section.label == "Figure 6, simulated"
    with style.theme():
        assert len(virtual.sheet().axes) == 16
    empty = part6_simulated([], HOME)
    assert not empty.drawn and "this is what the paper prints" in empty.section.body
