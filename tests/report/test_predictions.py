"""Figures 2 and 8: what is drawn are the records' numbers, and the words beside them say what the numbers say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from prediction_samples import NO_EARLY, evaluation, fig2_records, fig8_records, record
from report_samples import HOME

from seqmoe.harness.store import store_path
from seqmoe.harness.studies.record import to_line
from seqmoe.predictor.evaluation import ece, interval, recall, recall_on_misses
from seqmoe.report import style
from seqmoe.report.figure2 import Figure2
from seqmoe.report.figure8 import Figure8
from seqmoe.report.findings import facts2, facts8, sentence2, sentence8
from seqmoe.report.paper import claims
from seqmoe.report.plot import Line, Plot, draw_plot
from seqmoe.report.predictions import groups_of
from seqmoe.report.predictor_tables import ablation_table, direct_head, predictors_table
from seqmoe.report.writer import write_report
from seqmoe.spec.prediction import PREDICTORS, PredictionCell

CLAIMS = claims(HOME)
REAL = "gpt-oss-20b.npz"


@pytest.fixture(scope="module")
def eight() -> Figure8:
    return Figure8(groups_of(fig8_records(REAL)), CLAIMS)


def cell(predictor="mamba2", **changes) -> PredictionCell:
    defaults = {
        "suite": "fig8",
        "panel": "predictors",
        "traces": REAL,
        "minutes": 12.0 if predictor in style.PREDICTORS else 0,
    }
    return PredictionCell(predictor=predictor, **(defaults | changes))


def judged(**recalls) -> Figure8:
    """A figure of predictors with these recalls at k + 3."""
    records = [record(cell(name), evaluation=evaluation(value).as_dict()) for name, value in recalls.items()]
    return Figure8(groups_of(records), CLAIMS)


def drawn(plot: Plot):
    with style.theme():
        axes = Figure().subplots()
        return axes, draw_plot(plot, axes)


def test_lines_are_the_recalls_of_the_records_with_their_intervals(eight) -> None:
    (group,) = eight.groups
    seq1, seq8, *_ = eight.panels(group)
    for one in group.predictors:
        line = next(line for line in seq1.lines if line.name == one.title)
        assert line.y == tuple(recall(one.evaluation, m) for m in range(5))
        assert list(zip(line.low, line.high, strict=True)) == [interval(one.evaluation, m) for m in range(5)]
        later = next(line for line in seq8.lines if line.name == one.title)
        assert later.y == tuple(recall(one.evaluation, m, "seq8") for m in range(5)) and later.look == "dashed"
    axes, tips = drawn(seq1)
    curves = [tuple(line.get_ydata()) for line in axes.lines if str(line.get_gid()).startswith("curve")]
    assert sorted(curves) == sorted(line.y for line in seq1.lines)
    points = {str(line.get_gid()): float(line.get_ydata()[0]) for line in axes.lines if str(line.get_gid()) in tips}
    assert len(points) == 5 * len(seq1.lines)
    for tip, value in points.items():
        assert f"{100 * value:.1f}%" in tips[tip]


def test_misses_and_calibration_are_those_of_the_records(eight) -> None:
    (group,) = eight.groups
    misses, reliability = eight.panels(group)[3:5]
    ours = group.predictors[0]
    assert misses.lines[0].y == tuple(recall_on_misses(ours.evaluation, r, 3) for r in (0.15, 0.25, 0.35, 0.45))
    assert [point.frequency for point in ours.reliability()] == list(reliability.lines[0].y)
    assert reliability.diagonal and f"ECE {ece(ours.evaluation.calibration):.3f}" in reliability.lines[0].name


def test_the_papers_numbers_are_ticks_in_a_panel_without_a_line_of_ours(eight) -> None:
    for plot in eight.panels(eight.groups[0]):
        assert not (plot.lines and plot.ticks)
    printed = eight.panels(eight.groups[0])[2]
    assert sorted(tick.value for tick in printed.ticks) == pytest.approx([0.8581, 0.8839, 0.9076, 0.909])
    assert "3.58 points" in printed.note
    axes, _ = drawn(printed)
    assert sorted({float(line.get_ydata()[0]) for line in axes.lines}) == sorted(tick.value for tick in printed.ticks)


def test_recall_panels_share_one_scale_that_holds_everything(eight) -> None:
    panels = eight.panels(eight.groups[0])[:3]
    (ends,) = {plot.ends for plot in panels}
    values = [y for plot in panels for line in plot.lines for y in (*line.y, *line.low, *line.high)]
    assert ends[0] <= min(values) and max(values) <= ends[1]


def test_the_data_hold_every_drawn_number(eight) -> None:
    table = eight.table()
    ours = table[(table["predictor"] == "mamba2") & (table["variant"] == "")]
    group = eight.groups[0]
    assert list(ours.loc[ours["metric"] == "recall seq1", "value"]) == list(eight.panels(group)[0].lines[0].y)
    assert list(ours.loc[ours["metric"] == "recall by step", "x"]) == list(range(1, 9))
    assert len(ours[ours["metric"] == "recall on misses"]) == 20 and len(ours[ours["metric"] == "reliability"]) == 15
    assert (table["traces"] == "paper").sum() == (CLAIMS["figure"].astype(str) == "8").sum()


def test_long_sequences_have_a_line_where_there_are_any() -> None:
    long = evaluation(0.8, long=True)
    figure = Figure8(groups_of([record(cell(), evaluation=long.as_dict())]), CLAIMS)
    (line,) = (line for line in figure.panels(figure.groups[0])[0].lines if line.look == "dotted")
    assert line.y[3] == recall(long, 3, "long") and "4,096" in line.name
    table = predictors_table(figure.groups[0])
    assert "Seq-L1, k+3" in table.headings


def test_every_set_of_traces_is_a_group_of_its_own_real_ones_first_and_old_ones_left_out() -> None:
    records = [*fig8_records(), *fig8_records(REAL)]
    other = records[0].observations | {"traces": records[0].observations["traces"] | {"digest": "ba9876543210"}}
    old = replace(records[0], started="2025-01-01T00:00:00Z", observations=other)
    groups = groups_of([old, *records])
    assert [group.source for group in groups] == ["real routing of gpt-oss-20b", "the reference model's own routing"]
    assert len(groups[1].predictors) == len(PREDICTORS)


def test_trained_predictors_of_one_picture_were_trained_for_equally_long() -> None:
    names, minutes = ("mamba2", "transformer"), (3.0, 60.0)
    records = [record(cell(name, minutes=m)) for name in names for m in minutes]
    (group,) = groups_of(records[:3])
    assert [one.record.cell.minutes for one in group.predictors] == [3.0, 3.0]
    (group,) = groups_of(records)
    assert [one.record.cell.minutes for one in group.predictors] == [60.0, 60.0]


@pytest.mark.parametrize(
    ("recalls", "words"),
    [
        ({"mamba2": 0.80, "transformer": 0.81}, r"1\.0 points \(within 2 points\) behind the Transformer probe"),
        ({"mamba2": 0.70, "transformer": 0.81}, r"11\.0 points \(not within 2 points\) behind the Transformer probe"),
        ({"mamba2": 0.84, "transformer": 0.81}, r"3\.0 points ahead of the Transformer probe"),
        ({"mamba2": 0.80, "previous": 0.6, "first_order": 0.64}, r"statistics at 6\d\.\d%, 16\.0 points below"),
        ({"mamba2": 0.60, "previous": 0.66}, r"previous token at 65\.\d%, 6\.0 points above"),
        ({"mamba2": 0.60, "early_router": 0.9}, r"loses 3\.0 points, less than the paper's 3\.58\.$"),
        ({"transformer": 0.8}, r"SeqMoE's own predictor gave no result"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_the_numbers_say(recalls, words) -> None:
    figure = judged(**recalls)
    assert re.search(words, sentence8(figure, figure.groups[0]))


@pytest.mark.parametrize(("drop", "words"), [(0.036, ", as in the paper (3.58)"), (0.06, "more than the paper's 3.58")])
def test_the_loss_over_the_rollout_is_set_beside_the_papers(drop, words) -> None:
    found = evaluation(0.8, drop).as_dict()
    figure = Figure8(groups_of([record(cell(), evaluation=found)]), CLAIMS)
    assert words in sentence8(figure, figure.groups[0])


def test_facts_are_the_records_numbers(eight) -> None:
    (group,) = eight.groups
    values = {fact.title: fact.value for fact in facts8(eight, group)}
    assert values["of the next token's experts"] == f"{group.predictors[0].recall().value:.1%}"
    assert values["points to the Transformer probe"] == "−1.0" and values["points lost over eight steps"] == "3.0"
    assert facts8(judged(previous=0.5), judged(previous=0.5).groups[0]) == []


def test_tables_hold_the_numbers_mark_the_best_and_leave_open_what_is_not_known(eight) -> None:
    (group,) = eight.groups
    table = predictors_table(group)
    column = table.headings.index("k+3")
    assert [row[column].text for row in table.rows] == [f"{100 * one.recall().value:.1f}%" for one in group.predictors]
    assert [row[0].text for row in table.rows if row[column].best] == ["Transformer probe"]
    assert table.rows[0][table.headings.index("Per token")].text == "2.1 ms"
    ablation = ablation_table(group)
    difference = ablation.headings.index("Against first row")
    rows = {row[0].text: row[difference] for row in ablation.rows}
    assert rows["all parts on"].text == "" and float(rows["Psi off"].text) < -4 and rows["Psi off"].below == ""
    assert rows["KL loss only"].below == "within the intervals"
    early = Figure8(groups_of(fig8_records()), CLAIMS).groups[0]
    row = next(row for row in predictors_table(early).rows if row[0].text == "Early router (a layer ahead)")
    headings = predictors_table(early).headings
    assert not any(entry.best for entry in row)  # it looks less far than the others
    assert row[headings.index("Seq-8, k+3")].text == row[headings.index("Per token")].text == "–"
    assert direct_head(group) == ("SeqMoE (Mamba2)", 0.83, 0.86, 2100.0, 350.0)


def test_figure_2_draws_the_curves_of_both_orders() -> None:
    figure = Figure2(groups_of(fig2_records(REAL)), CLAIMS)
    rise, loss, printed = figure.panels(figure.groups[0])
    assert [(line.name, line.look) for line in rise.lines] == [("ordered", "solid"), ("shuffled", "dashed")]
    assert (
        rise.lines[1].y == (0.45,) * 12 and rise.lines[0].x == tuple(n / 2 for n in range(1, 13)) and not loss.percent
    )
    assert [tick.text for tick in printed.ticks] == ["92%", "23%", "> 90%"]
    assert [fact.value for fact in facts2(figure, figure.groups[0])] == ["81.4%", "45.0%"]
    said = sentence2(figure, figure.groups[0])
    assert "36.4 points" in said and "21.9% would be chance" in said and "69 points, to 23%" in said
    table = figure.table()
    assert list(table.loc[table["order"] == "shuffled", "recall"]) == [0.45] * 12 + [0.23]
    flat = Figure2(groups_of(fig2_records(REAL, shuffled=0.81)), CLAIMS)
    assert "next to nothing" in sentence2(flat, flat.groups[0])
    half = Figure2(groups_of(fig2_records(REAL)[:1]), CLAIMS)
    assert "one of them has no learning curve" in sentence2(half, half.groups[0])


def test_colours_and_markers_tell_predictors_apart_and_all_kinds_have_them() -> None:
    assert set(style.PREDICTORS) == set(PREDICTORS)
    assert len({colour for _, colour, _ in style.PREDICTORS.values()}) == len(PREDICTORS)
    assert len({marker for _, _, marker in style.PREDICTORS.values()}) == len(PREDICTORS)


def test_a_line_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 x, 1 y"):
        Line("x", "#000000", (1.0, 2.0), (1.0,))
    with pytest.raises(ValueError, match="look"):
        Line("x", "#000000", (), (), look="wavy")


@pytest.fixture
def report(tmp_path, monkeypatch, seqmoe):
    """Run `seqmoe report` on a folder of given records; returns exit code, the JSON, and stderr."""

    def run(records, *arguments):
        for one in records:
            path = store_path(tmp_path / "results", "cpu-example-2c", one.cell.suite)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(to_line(one) + "\n")
        monkeypatch.chdir(HOME.declarations)
        folders = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]
        code, out, err = seqmoe("report", *folders, "--json", *arguments)
        return code, json.loads(out.splitlines()[-1] if out else "{}"), err

    return run


def test_a_page_has_a_section_per_figure_in_the_papers_order_and_says_how_to_make_the_missing(report) -> None:
    code, written, _ = report([*fig8_records(REAL), *fig8_records()])
    assert code == 0 and set(written["figures"]) == {"6", "6-simulated", "8"}
    missing = Path(written["page"]).with_name("figure2.html").read_text(encoding="utf-8")
    numbers = re.findall(r'<a href="figure(\d)\.html"[^>]*>\d</a>', missing)
    assert numbers == ["1", "2", "3", "4", "6", "7", "8", "9"]
    assert "nox -s reproduce-fig2" in missing and "seqmoe bench fig2" in missing
    page = Path(written["page"]).with_name("figure8.html").read_text(encoding="utf-8")
    assert NO_EARLY.reason in page.replace("&#39;", "'") and "Beyond the paper" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    table = pd.read_csv(written["figures"]["8"]["csv"])
    assert set(table["traces"].dropna()) == {REAL, "reference", "paper"}


def test_one_suite_alone(report) -> None:
    code, written, _ = report(fig2_records(REAL), "--suite", "fig2")
    assert code == 0 and written["csv"].endswith("figure2.csv") and list(written["figures"]) == ["2"]
    page = Path(written["page"]).read_text(encoding="utf-8")
    assert set(re.findall(r'"(figure\d)\.html"', page)) == {"figure2"} and "verdicts.html" not in page


def test_what_a_record_says_is_text_and_never_markup(tmp_path) -> None:
    evil = '<script>alert("x")</script>'
    bad = replace(NO_EARLY, reason=evil)
    records = [record(cell()), record(cell("early_router"), bad), record(cell("previous", traces=evil))]
    write_report(records, HOME, tmp_path, "fig8")
    for path in tmp_path.glob("*.html"):
        assert "<script>alert" not in path.read_text(encoding="utf-8")


def test_nothing_is_invented_where_a_record_has_no_number() -> None:
    empty = evaluation(0.8, far=False)
    figure = Figure8(groups_of([record(cell(), evaluation=empty.as_dict(), training={"curve": []})]), CLAIMS)
    (one,) = figure.groups[0].predictors
    assert math.isnan(one.recall(which="seq8").value) and "look that far" in one.recall(which="seq8").missing
    curves = figure.panels(figure.groups[0])[5]
    assert curves.lines == () and curves.empty == "no predictor was trained"
    drawn(curves)
