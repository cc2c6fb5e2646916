"""A panel of lines or of the paper's ticks, and how it is drawn. The paper's numbers never share axes with ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from seqmoe.report import style

SOLID = "solid"
DASHED = (0.0, (4.5, 2.0))
DOTTED = (0.0, (1.2, 1.6))
LINES: dict[str, Any] = {"solid": SOLID, "dashed": DASHED, "dotted": DOTTED}


@dataclass(frozen=True, slots=True)
class Line:
    """One series. ``low`` and ``high`` are its 95 % interval, empty where there is none.

    ``look`` is one of `LINES`; ``strong`` is what the panel is about; ``marker`` "" draws the line alone.
    """

    name: str
    colour: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    marker: str = "o"
    look: str = "solid"
    strong: bool = False

    def __post_init__(self) -> None:
        if self.look not in LINES:
            raise ValueError(f"look = {self.look!r}; valid: {', '.join(LINES)}")
        if len(self.x) != len(self.y) or len(self.low) != len(self.high) or len(self.low) not in (0, len(self.x)):
            raise ValueError(
                f"{self.name}: {len(self.x)} x, {len(self.y)} y, {len(self.low)} low, {len(self.high)} high"
            )


@dataclass(frozen=True, slots=True)
class Tick:
    """A number that the paper prints, drawn as a black tick with its value; ``text`` is what is written (92%, say)."""

    name: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines, or the paper's ticks, on axes of their own. ``unit`` is the y axis' label, ``across`` the x axis'.

    ``places`` are the x axis' ticks and their labels (empty for plain numbers); ``percent`` writes y as a percentage;
    ``diagonal`` draws where x equals y; ``ends`` fixes the y axis; ``empty`` says why there is nothing to draw.
    """

    title: str
    note: str
    unit: str
    across: str
    lines: tuple[Line, ...] = ()
    ticks: tuple[Tick, ...] = ()
    places: tuple[tuple[float, str], ...] = ()
    ends: tuple[float, float] | None = None
    percent: bool = True
    diagonal: bool = False
    empty: str = ""


def draw_plot(plot: Plot, axes: Axes) -> dict[str, str]:
    """Draw it; returns the text to show over each point, by its id in an SVG."""
    tips: dict[str, str] = {}
    for index, line in enumerate(sorted(plot.lines, key=lambda line: line.strong)):
        _line(plot, axes, line, f"curve-{index}", tips)
    _ticks(axes, plot.ticks, tips)
    if plot.diagonal:
        axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1, gid="diagonal")
    _frame(plot, axes)
    return tips


def common_ends(plots: list[Plot]) -> tuple[float, float]:
    """Ends of the y axis that fit the lines and ticks of all the plots, in steps of a tenth."""
    values = [value for plot in plots for line in plot.lines for value in (*line.y, *line.low, *line.high)]
    values += [tick.value for plot in plots for tick in plot.ticks]
    values = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    return max(0.0, math.floor(10 * min(values) - 0.2) / 10), min(1.0, math.ceil(10 * max(values) + 0.2) / 10)


def _line(plot: Plot, axes: Axes, line: Line, name: str, tips: dict[str, str]) -> None:
    order = 3.0 if line.strong else 2.0
    width = 2.4 if line.strong else 1.3
    axes.plot(line.x, line.y, color=line.colour, linewidth=width, linestyle=LINES[line.look], zorder=order,
              label=line.name, gid=name, solid_capstyle="round")  # fmt: skip
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.16, linewidth=0, zorder=order - 0.5)
    if not line.marker:
        return
    intervals = zip(line.low, line.high, strict=True) if line.low else [(math.nan, math.nan)] * len(line.x)
    for x, y, (low, high) in zip(line.x, line.y, intervals, strict=True):
        tip = f"tip-{len(tips)}"
        place = dict(plot.places).get(x, f"{x:g}")
        around = f" [{_number(plot, low)}, {_number(plot, high)}]" if math.isfinite(low) else ""
        tips[tip] = f"{line.name}, {place}: {_number(plot, y)}{around}"
        axes.plot([x], [y], color=line.colour, marker=line.marker, markersize=5.4 if line.strong else 4.2,
                  markeredgecolor=style.PAPER, markeredgewidth=0.7, linestyle="none", zorder=order + 0.4,
                  gid=tip)  # fmt: skip


def _ticks(axes: Axes, ticks: tuple[Tick, ...], tips: dict[str, str]) -> None:
    for index, tick in enumerate(ticks):
        tip = f"tip-{len(tips)}"
        tips[tip] = f"{tick.name}, printed in the paper: {tick.text}"
        axes.plot([index - 0.3, index + 0.3], [tick.value] * 2, color=style.INK, linewidth=2.6, solid_capstyle="butt",
                  zorder=3, gid=tip)  # fmt: skip
        axes.annotate(tick.text, (index, tick.value), xytext=(0, 4), textcoords="offset points", ha="center",
                      va="bottom", fontsize=8.5, color=style.INK)  # fmt: skip


def _frame(plot: Plot, axes: Axes) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    if plot.ticks:
        axes.set_xticks(range(len(plot.ticks)), [tick.name for tick in plot.ticks], fontsize=7.5)
        axes.set_xlim(-0.6, max(len(plot.ticks) - 0.4, 1.6))
    elif plot.places:
        axes.set_xticks([x for x, _ in plot.places], [text for _, text in plot.places])
    if plot.ends:
        axes.set_ylim(*plot.ends)
    if plot.percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.unit)
    axes.set_title(plot.title, loc="left", fontweight="bold", pad=20)
    note = axes.annotate(plot.note, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
                         fontsize=7.5, color=style.MUTED)  # fmt: skip
    note.set_in_layout(False)
    if plot.empty:
        axes.annotate(plot.empty, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center", fontsize=8.5,
                      color=style.MUTED, wrap=True)  # fmt: skip
        axes.set_yticks([])
        axes.set_xticks([])


def _number(plot: Plot, value: float) -> str:
    return f"{100 * value:.1f}%" if plot.percent else f"{value:.3g}"
