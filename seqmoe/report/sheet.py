"""A figure of line panels on one sheet: a legend, and a band of panels for each group."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from seqmoe.report import style
from seqmoe.report.legend_columns import LINE, columns_of
from seqmoe.report.plot import DASHED, Plot, draw_plot

_ACROSS = 3
_WIDTH = 3.7 * _ACROSS


def sheet_of(bands: Sequence[tuple[str, Sequence[Plot]]], handles: Sequence[Line2D] | None = None) -> Figure:
    """All panels, three in a row; each band has a heading. Call it inside `seqmoe.report.style.theme`.

    ``handles`` are the legend's entries, those of the predictors if not given.
    """
    rows = [
        (title if start == 0 else "", plots[start : start + _ACROSS])
        for title, plots in bands
        for start in range(0, len(plots), _ACROSS)
    ]
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
    sheet = Figure(figsize=(_WIDTH, 3.25 * max(len(rows), 1) + 0.7), layout=layout)
    entries = legend([plot for _, plots in rows for plot in plots]) if handles is None else handles
    columns = columns_of([str(entry.get_label()) for entry in entries], _WIDTH, LINE)
    more = (len(entries) - 1) // columns
    heights = [0.17 + 0.05 * more, *[1.0] * len(rows)]
    parts = sheet.subfigures(len(rows) + 1, 1, squeeze=False, height_ratios=heights)[:, 0]
    parts[0].legend(
        handles=entries, loc="center", ncols=columns, frameon=False, handlelength=1.8,
        columnspacing=1.5,
    )  # fmt: skip
    for part, (title, plots) in zip(parts[1:], rows, strict=True):
        if title:
            part.suptitle(title, x=0.006, ha="left", fontsize=12, fontweight="bold", color=style.INK)
        for axes, plot in zip(part.subplots(1, _ACROSS, squeeze=False)[0], plots, strict=False):
            draw_plot(plot, axes)
        for axes in part.axes[len(plots) :]:
            axes.set_axis_off()
    return sheet


def legend(plots: Sequence[Plot]) -> list[Line2D]:
    """One handle for each colour, one for each look of a line beside the solid one, one for the paper's ticks."""
    lines = [line for plot in plots for line in plot.lines]
    named = {line.colour: line for line in reversed(lines)}
    titles = {colour: title for title, colour, _ in style.PREDICTORS.values()}
    handles = [
        Line2D([], [], color=colour, marker=line.marker or "none", linewidth=2.0,
               label=line.name if colour in (style.SHUFFLED,) or line.name == "ordered" else titles[colour])
        for colour, line in sorted(named.items(), key=lambda pair: _place(pair[0]))
    ]  # fmt: skip
    if any(line.look == "dashed" and line.colour != style.SHUFFLED for line in lines):
        handles.append(Line2D([], [], color=style.MUTED, linestyle=DASHED, label="eight steps (Seq-8)"))
    if any(plot.ticks for plot in plots):
        handles.append(Line2D([], [], color=style.INK, linewidth=2.6, label="printed in the paper"))
    return handles


def _place(colour: str) -> int:
    order = [shade for _, shade, _ in style.PREDICTORS.values()]
    return order.index(colour) if colour in order else len(order)
