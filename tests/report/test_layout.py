"""Protects the pictures of a report from changing where nothing has changed: the same records give the same bytes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from report_samples import HOME, quick_sweep

from seqmoe.report import style
from seqmoe.report.layout import save_svg
from seqmoe.report.plot import Plot
from seqmoe.report.registry import FIGURES
from seqmoe.report.sheet import sheet_of
from seqmoe.report.writer import write_report


def _svg(figure: Figure, **options) -> str:
    stream = io.StringIO()
    save_svg(figure, stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize("figure", ["6", "6-simulated"])
def test_a_sheet_of_many_panels_is_the_same_however_memory_is_laid_out(figure) -> None:
    (entry,) = (entry for entry in FIGURES if entry.figure == figure)
    part = entry.part(quick_sweep(1), HOME)
    with style.theme():
        sheets = [part.sheet() for _ in range(6)]
        assert len({_svg(sheet) for sheet in sheets}) == 1


def test_two_reports_of_the_same_records_have_the_same_pictures_and_pages(tmp_path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    for out in (first, again):
        write_report(quick_sweep(1), HOME, out, png=[])
    pictures = sorted(path.name for path in first.glob("*.svg"))
    assert "figure6.svg" in pictures
    for name in (*pictures, *sorted(path.name for path in first.glob("*.html"))):
        assert (first / name).read_bytes() == (again / name).read_bytes(), name


def test_a_picture_stays_where_the_layout_has_put_it() -> None:
    def panels() -> Figure:
        figure = Figure(figsize=(6, 4), layout="constrained")
        upper, lower = figure.subfigures(2, 1)
        upper.suptitle("a title")
        lower.subplots(1, 2)[0].set_ylabel("a label that takes room")
        upper.subplots().plot([1, 2])
        return figure

    with style.theme():
        settled, plain = panels(), panels()
        _svg(settled)
        plain.savefig(io.StringIO(), format="svg")
    for one, other in zip(settled.axes, plain.axes, strict=True):
        # A hundredth of a point.
        assert np.abs(one.get_position().get_points() - other.get_position().get_points()).max() < 0.01 / 432


def test_a_long_legend_of_line_panels_stays_within_the_sheet() -> None:
    names = (
        "SeqMoE",
        "SeqMoE (Infinity)",
        "SeqMoE (CacheOnly)",
        "LRU",
        "LFU",
        "PrefillHot",
        "Belady (bound)",
        "Belady-F8",
        "Learned score + matroid",
        "Learned score",
        "Forecast, then frequency",
        "CacheScore with next step",
        "Mix",
        "LFU with decay",
        "loaded on demand",
        "prefetched",
        "prefetched and never needed",
        "prefetched too late",
        "printed in the paper",
    )
    handles = [Line2D([], [], label=name) for name in names]
    with style.theme():
        sheet = sheet_of([("a band", [Plot("title", "note", "unit", "across", empty="nothing")])], handles)
        renderer = FigureCanvasAgg(sheet).get_renderer()
        sheet.draw(renderer)
    (legend,) = sheet.subfigs[0].legends
    box = legend.get_window_extent(renderer)
    assert box.x0 >= 0 and box.x1 <= sheet.bbox.width
