"""Protects the figure: one lane per axis, bars as high as the numbers, marks for what did not run, readable labels."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from report_samples import HOME, NEEDS_GPU, NOT_INSTALLED, cell, quick_sweep, record

from seqmoe.report import style
from seqmoe.report.bar_sheet import bar_sheet
from seqmoe.report.drawing import draw
from seqmoe.report.figure6 import Figure6
from seqmoe.report.figure6_printed import Printed
from seqmoe.report.frame import records_frame
from seqmoe.report.panel import COLUMNS, Panel, marker, slots_of
from seqmoe.report.paper import figure6_bars, shares_of_full_load
from seqmoe.report.summary import summarise

BARS = figure6_bars(HOME)


def figure_of(records) -> Figure6:
    return Figure6(summarise(records_frame(records, HOME)), BARS, HOME)


@pytest.fixture(scope="module")
def quick() -> Figure6:
    return figure_of(quick_sweep())


def printed_panels() -> list[Panel]:
    return [panel for row in Printed(BARS, HOME).rows() for panel in row.panels]


def panel_of(rows: list[tuple], lane: str = "measured", **changes) -> Panel:
    return Panel("title", "note", lane, "residency", "tok/s", pd.DataFrame(rows, columns=COLUMNS), **changes)


def drawn(panel: Panel):
    with style.theme():
        figure = Figure(figsize=(4.1, 3.2), layout="constrained")
        axes = figure.subplots()
        tips = draw(panel, axes)
        figure.canvas.draw()
    return figure, axes, tips


def bars_in(axes) -> dict[str, Rectangle]:
    return {patch.get_gid(): patch for patch in axes.patches if patch.get_gid()}


def test_observed_panels_are_the_emulated_share_with_the_papers_ticks_and_the_measured_speed(quick):
    panels = quick.observed()
    assert [(panel.lane, panel.unit) for panel in panels] == [
        ("emulated", "Share of full load (%)"),
        ("measured", "Decode (tok/s)"),
    ]
    assert panels[0].full == 100.0 and "FullLoad" not in panels[0].systems
    assert panels[0].note.endswith("ticks: the paper's Qwen3-30B-A3B-FP8") and not panels[1].printed
    assert set(panels[1].bars["x"]) == {0.15, 0.25, 0.35, 0.45, 1.0}


def test_the_ticks_over_emulated_bars_are_shares_of_the_printed_full_load(quick):
    printed = quick.observed()[0].printed
    assert printed["SeqMoE, Mamba2", 0.45] == pytest.approx(100 * 104.1 / 122.7)
    shares = shares_of_full_load(BARS)
    assert "FullLoad" not in set(shares["system"]) and len(shares) == 4 * 20 + 4 * 16


def test_the_papers_seqmoe_stands_over_the_row_with_its_kind_of_predictor():
    point = {"system": "seqmoe", "residency": 0.45, "lane": "emulated", "hardware": "rtx4090"}
    cells = [cell(lane="emulated", hardware="rtx4090"), cell(**point, predictor="mamba2"), cell(**point)]
    (panel,) = figure_of([record(one) for one in cells]).observed()
    assert list(panel.printed) == [("SeqMoE, Mamba2", 0.45)]


def test_the_papers_grid_holds_every_printed_bar_once():
    rows = Printed(BARS, HOME).rows()
    assert [len(row.panels) for row in rows] == [4, 4, 4, 4]
    panels = [panel for row in rows for panel in row.panels]
    assert {panel.lane for panel in panels} == {"paper"}
    lines = sum(panel.full is not None for panel in panels)
    values = sorted(value for panel in panels for value in panel.bars["value"].dropna())
    printed = BARS[BARS["system"] != "FullLoad"]["value"].dropna()
    assert values == sorted(printed) and lines == 8
    assert all(panel.logarithmic == (panel.unit == "TTFT (s)") for panel in panels)


def test_bars_are_as_high_as_their_values_and_in_their_systems_colour():
    panel = panel_of([("SeqMoE", 0.45, 40.0, 38.0, 43.0, "ok", ""), ("llama.cpp", 0.45, 10.0, 9.0, 11.0, "ok", "")])
    _, axes, tips = drawn(panel)
    bars = bars_in(axes)
    heights = {tips[gid].split(",")[0]: bar.get_height() for gid, bar in bars.items()}
    assert heights == {"SeqMoE": 40.0, "llama.cpp": 10.0}
    shades = {tips[gid].split(",")[0]: bar.get_facecolor() for gid, bar in bars.items()}
    assert shades["SeqMoE"] != shades["llama.cpp"]
    assert "[38.00, 43.00]" in " ".join(tips.values())


@pytest.mark.parametrize(
    ("lane", "dotted", "hatched", "ticked"),
    [("measured", 0, 0, 0), ("emulated", 1, 0, 0), ("simulated", 0, 1, 0), ("paper", 0, 0, 1)],
)
def test_every_lane_has_its_drawing(lane, dotted, hatched, ticked):
    _, axes, _ = drawn(panel_of([("SeqMoE", 0.45, 40.0, float("nan"), float("nan"), "ok", "")], lane))
    (bar,) = bars_in(axes).values()
    assert (bar.get_linestyle() not in ("-", "solid")) == bool(dotted)
    assert bool(bar.get_hatch()) == bool(hatched)
    assert sum(line.get_color() == style.INK and line.get_linewidth() > 2 for line in axes.lines) == ticked


def test_an_unknown_lane_has_no_drawing():
    with pytest.raises(ValueError, match="guessed"):
        panel_of([("SeqMoE", 0.45, 40.0, 39.0, 41.0, "ok", "")], lane="guessed")


def test_what_did_not_run_is_a_mark_with_its_reason_and_no_bar():
    records = [
        record(cell(), 50.0),
        record(cell(system="FreeToken", residency=0.25), status=NEEDS_GPU),
        record(cell(system="vLLM"), status=NOT_INSTALLED),
    ]
    (panel,) = figure_of(records).observed()
    _, axes, tips = drawn(panel)
    assert len(bars_in(axes)) == 1
    assert sorted(str(line.get_marker()) for line in axes.lines if line.get_gid()) == ["o", "x"]
    assert any("unsupported" in tip and "needs a GPU" in tip for tip in tips.values())
    assert {marker("unsupported"), marker("not_installed"), marker("oom")} == {"x", "o", "^"}


def test_lanes_models_and_hosts_never_share_a_panel():
    records = [
        record(cell(), 50.0),
        record(cell(lane="emulated", hardware="rtx4090")),
        record(cell(system="lru", residency=0.25, lane="emulated", hardware="rtx4090")),
        record(cell(model="qwen3-30b-a3b-fp8"), 90.0),
        record(cell(), 70.0, host="another-host"),
        record(cell(decode_tokens=12), 50.0),
    ]
    panels = figure_of(records).observed()
    assert [panel.lane for panel in panels] == ["measured", "measured", "measured", "emulated", "measured"]
    assert all(len(panel.bars) == 1 for panel in panels if panel.lane == "measured")
    assert len({(panel.title, panel.note) for panel in panels}) == len(panels)


def test_a_measured_panel_holds_one_device_and_names_it():
    records = [record(cell(), 50.0), record(cell(system="vLLM"), 900.0, device="cuda")]
    panels = figure_of(records).observed()
    assert [(panel.title, panel.systems) for panel in panels] == [
        ("Reference model, measured, CPU", ["FullLoad"]), ("Reference model, measured, GPU", ["vLLM"]),
    ]  # fmt: skip


def test_an_emulated_panel_says_which_overlap_ratio_was_asked_for_and_reached():
    points = [cell(system="lru", residency=r, lane="emulated", hardware="rtx4090") for r in (0.25, 0.45)]
    ratios = [{"overlap_ratio": 0.9, "overlap_ratio_achieved": reached} for reached in (0.84, 0.68)]
    panels = figure_of([record(p, stats=s) for p, s in zip(points, ratios, strict=True)]).observed()
    assert panels[0].note == "RTX 4090, 0.90 experts a layer (reached 0.68-0.84)"


def test_a_batch_experiment_has_batch_sizes_on_its_axis_and_full_load_in_it():
    systems = (("full", 1.0), ("lru", 0.35))
    points = [cell(panel="batch", batch=batch, system=s, residency=r) for batch in (1, 2) for s, r in systems]
    (panel,) = figure_of([record(point) for point in points]).observed()
    assert panel.axis == "batch_size" and set(panel.bars["x"]) == {1.0, 2.0} and len(panel.bars) == 4


def test_bars_of_a_group_do_not_overlap_and_groups_stand_apart(quick):
    for panel in (*quick.observed(), *printed_panels()):
        slots = slots_of(panel)
        for left, right in itertools.pairwise(slots):
            assert right.centre > left.centre
            apart = right.centre - left.centre
            assert apart >= 1.0 or not (left.ran and right.ran)


def test_no_two_value_labels_overlap(quick):
    panels = [*quick.observed(), *printed_panels()]
    for panel in panels:
        figure, axes, _ = drawn(panel)
        renderer = FigureCanvasAgg(figure).get_renderer()
        numbers = [text for text in axes.texts if isinstance(text, Annotation) and text.get_text()[:1].isdigit()]
        boxes = [text.get_window_extent(renderer) for text in numbers]
        assert len(boxes) == panel.bars["value"].notna().sum()
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other), f"{panel.title}: labels overlap"
        for box in boxes:
            assert box.y1 <= axes.title.get_window_extent(renderer).y0, f"{panel.title}: a label reaches the title"


def test_colours_are_fixed_distinct_and_defined_for_a_system_of_tomorrow():
    shades = [style.colour(name) for name in style.COLOURS]
    assert len(set(shades)) == len(shades)
    assert style.colour("A new system") == style.colour("A new system")
    assert style.in_order(["SeqMoE", "A new system", "llama.cpp"]) == ["llama.cpp", "SeqMoE", "A new system"]


def test_the_table_holds_what_is_drawn_ours_and_theirs(quick):
    table = quick.table()
    assert (table["lane"] == "paper").sum() == 288
    ours = table[(table["lane"] == "emulated") & (table["system"] == "seqmoe")]
    assert len(ours) == 8 and ours["share"].notna().all()


def test_without_records_the_sheet_shows_the_paper_alone():
    figure = figure_of([])
    assert figure.observed() == []
    with style.theme():
        assert len(figure.figure().axes) == 16


def test_a_sheet_of_many_systems_has_a_legend_and_notes_that_stay_within_it():
    names = [f"SeqMoE, a predictor of a long name, number {number}" for number in range(9)]
    rows = [(name, x, 40.0, 39.0, 41.0, "ok", "") for name in names[:7] for x in (0.15, 0.25)]
    note = "RTX 4090, 0.90 experts a layer (reached 0.68-0.84), 64 tokens; ticks: the paper's Qwen3-30B-A3B-FP8"
    bars = pd.DataFrame(rows, columns=COLUMNS)
    panels = [Panel(f"title {at}", note, "emulated", "residency", "Share", bars) for at in range(2)]
    with style.theme():
        sheet = bar_sheet(panels)
        renderer = FigureCanvasAgg(sheet).get_renderer()
        sheet.draw(renderer)
    (legend,) = [one for band in sheet.subfigs for one in band.legends]
    box = legend.get_window_extent(renderer)
    assert box.x0 >= 0 and box.x1 <= sheet.bbox.width
    notes = [text.get_window_extent(renderer) for axes in sheet.axes for text in axes.texts if "RTX" in text.get_text()]
    assert len(notes) == 2 and not notes[0].overlaps(notes[1])
    assert all(words.x0 >= 0 and words.x1 <= sheet.bbox.width for words in notes)
