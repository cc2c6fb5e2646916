"""Panels of bars on one sheet that can be read at the width of a page: in rows as wide as they need, or in a grid."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from seqmoe.report import style
from seqmoe.report.drawing import Look, draw
from seqmoe.report.legend_columns import PATCH, columns_of
from seqmoe.report.panel import Panel, marker, span_of

# Inches. A README shows a picture some 830 pixels wide: letters of nine points are then about nine pixels high.
_WIDTH = 10.0
_GRID_WIDTH = 11.0
# Units of one bar that a row holds.
_ROW_SPAN = 34.0


def bar_sheet(panels: Sequence[Panel]) -> Figure:
    """Panels in their order, as many in a row as have room there. Call it inside `seqmoe.report.style.theme`."""
    rows = _packed(panels)
    sheet, bands = _bands(panels, [3.3] * len(rows), _WIDTH)
    for band, row in zip(bands, rows, strict=True):
        spans = [span_of(panel) for panel in row]
        # A lone narrow panel does not fill a row.
        rest = max(_ROW_SPAN / 2 - sum(spans), 0.0)
        ratios = [*spans, *([rest] if rest else [])]
        places = band.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
        for axes, panel, span in zip(places, row, spans, strict=False):
            draw(panel, axes, _WIDTH * span / sum(ratios))
        for axes in places[len(row) :]:
            axes.set_axis_off()
    return sheet


def grid_sheet(rows: Sequence[tuple[str, Sequence[Panel]]]) -> Figure:
    """Rows of panels, one column for each model; what a row or a column has in common is said once.

    Call it inside `seqmoe.report.style.theme`.
    """
    panels = [panel for _, row in rows for panel in row]
    across = max((len(row) for _, row in rows), default=1)
    sheet, bands = _bands(panels, [2.35, *[2.15] * (len(rows) - 1)], _GRID_WIDTH)
    for at, (band, (title, row)) in enumerate(zip(bands, rows, strict=True)):
        band.suptitle(title, x=0.006, ha="left", fontsize=10, fontweight="bold", color=style.INK)
        places = band.subplots(1, across, squeeze=False)[0]
        for column, (axes, panel) in enumerate(zip(places, row, strict=False)):
            draw(panel, axes, _GRID_WIDTH / across, Look(values=False, heading=False, unit=column == 0, axis=False))
            if at == 0:
                axes.set_title(f"{panel.title}\n{panel.note}", loc="center", fontsize=9)
        for axes in places[len(row) :]:
            axes.set_axis_off()
    return sheet


def _packed(panels: Sequence[Panel]) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    room = 0.0
    for panel in panels:
        span = span_of(panel)
        if not rows or span > room:
            rows.append([])
            room = _ROW_SPAN
        rows[-1].append(panel)
        room -= span
    return rows


def _bands(panels: Sequence[Panel], heights: Sequence[float], width: float) -> tuple[Figure, list[SubFigure]]:
    """A sheet with its legend on top, and a band for each row below it."""
    handles = _handles(panels)
    columns = columns_of([str(handle.get_label()) for handle in handles], width, PATCH)
    legend = 0.25 + 0.22 * -(-len(handles) // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05)
    sheet = Figure(figsize=(width, legend + sum(heights)), layout=layout)
    parts = sheet.subfigures(len(heights) + 1, 1, squeeze=False, height_ratios=[legend, *heights])[:, 0]
    parts[0].legend(handles=handles, loc="center", ncols=columns, frameon=False, handlelength=1.4, columnspacing=1.4)
    return sheet, list(parts[1:])


def _handles(panels: Sequence[Panel]) -> list[Artist]:
    systems = style.in_order(name for panel in panels for name in panel.systems)
    handles: list[Artist] = [Patch(facecolor=style.colour(name), label=name) for name in systems]
    lanes = {panel.lane for panel in panels}
    looks = {
        "measured": Patch(facecolor=style.GRID, label="measured"),
        "emulated": Patch(facecolor=style.GRID, edgecolor=style.INK, linestyle=(0, (1, 1.2)), label="emulated"),
        "simulated": Patch(facecolor=style.GRID, edgecolor=style.INK, hatch="////", label="simulated"),
    }
    handles += [look for lane, look in looks.items() if lane in lanes]
    if "paper" in lanes or any(panel.printed for panel in panels):
        handles.append(Line2D([], [], color=style.INK, linewidth=2.2, label="printed in the paper"))
    for status in sorted({status for panel in panels for status in panel.statuses}):
        handles.append(
            Line2D([], [], marker=marker(status), color=style.MUTED, markerfacecolor="none", markeredgewidth=1.6,
                   linestyle="none", label=status.replace("_", " "))
        )  # fmt: skip
    return handles
