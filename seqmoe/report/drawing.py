"""How a panel is drawn: bars by lane, intervals, values, and marks for what did not run."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from seqmoe.report import style
from seqmoe.report.panel import Panel, Slot, marker, slots_of, span_of

# In units of one bar: what of its place is inked.
_DRAWN = 0.86
_TICK = 2.2
# Points of a letter and of a line of a note.
_NOTE_LETTER, _NOTE_LINE = 4.1, 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """What a panel says besides its bars; in a grid the rows and columns say most of it once for all."""

    values: bool = True
    heading: bool = True
    unit: bool = True
    axis: bool = True


def draw(panel: Panel, axes: Axes, width: float = 4.1, look: Look | None = None) -> dict[str, str]:
    """Draw a panel on axes about ``width`` inches wide; returns the text to show over each bar, by its id in an SVG."""
    slots, span, look = slots_of(panel), span_of(panel), look or Look()
    pitch = width * 72 * 0.85 / span
    tips: dict[str, str] = {}
    for slot in slots:
        tip = f"tip-{len(tips)}"
        tips[tip] = _tip(panel, slot)
        if slot.ran:
            _bar(panel, axes, slot, tip)
            if look.values:
                _value(panel, axes, slot, pitch)
        elif slot.status:
            _absence(axes, slot, tip)
        if math.isfinite(slot.printed):
            tick(axes, slot.centre, _DRAWN, slot.printed, None if slot.ran or slot.status else tip)
    _frame(panel, axes, slots, span, look, width)
    return tips


def _bar(panel: Panel, axes: Axes, slot: Slot, tip: str) -> None:
    colour = style.colour(slot.system)
    looks: dict[str, Any] = {"facecolor": colour, "edgecolor": "none"}
    if panel.lane == "emulated":
        looks |= {"edgecolor": style.INK, "linewidth": 1.1, "linestyle": (0, (1, 1.2))}
    elif panel.lane == "simulated":
        looks |= {"hatch": "////", "edgecolor": style.INK, "linewidth": 0.6}
    elif panel.lane == "paper":
        looks |= {"facecolor": (colour, 0.28), "edgecolor": colour, "linewidth": 0.8}
    left = slot.centre - _DRAWN / 2
    bottom = 1e-3 if panel.logarithmic else 0.0
    axes.add_patch(Rectangle((left, bottom), _DRAWN, slot.value - bottom, facecolor=style.PAPER, zorder=1.9))
    axes.add_patch(Rectangle((left, bottom), _DRAWN, slot.value - bottom, gid=tip, zorder=2, **looks))
    if panel.lane == "paper":
        tick(axes, slot.centre, _DRAWN, slot.value)
    elif slot.has_interval:
        around = [[max(slot.value - slot.low, 0.0)], [max(slot.high - slot.value, 0.0)]]
        axes.errorbar(
            [slot.centre],
            [slot.value],
            yerr=around,
            color=style.INK,
            elinewidth=1.0,
            capsize=2.2,
            capthick=1.0,
            zorder=4,
        )


def tick(axes: Axes, centre: float, width: float, value: float, gid: str | None = None) -> None:
    """The paper's value, a little wider than a bar: on white, then in ink, so that it stands out from any hatch."""
    ends = [centre - width / 2 - 0.04, centre + width / 2 + 0.04]
    axes.plot(ends, [value] * 2, color=style.PAPER, linewidth=_TICK + 1.2, solid_capstyle="butt", zorder=3)
    axes.plot(ends, [value] * 2, color=style.INK, linewidth=_TICK, solid_capstyle="butt", zorder=3.1, gid=gid)


def _value(panel: Panel, axes: Axes, slot: Slot, pitch: float) -> None:
    text = f"{slot.value:.{panel.digits}f}"
    # A digit of this font is five points wide at size 8; what does not fit beside its neighbour stands up.
    upright = pitch >= 5.0 * len(text)
    axes.annotate(
        text,
        (slot.centre, slot.reach),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=0 if upright else 90,
        fontsize=8.0 if pitch > 13.0 else 6.5,
        color=style.INK,
        bbox={"boxstyle": "square,pad=0.12", "facecolor": style.PAPER, "edgecolor": "none"},
        zorder=5,
    )


def _absence(axes: Axes, slot: Slot, tip: str) -> None:
    axes.plot(
        [slot.centre],
        [0.045],
        transform=axes.get_xaxis_transform(),
        marker=marker(slot.status),
        markersize=5.0,
        markeredgewidth=1.5,
        markeredgecolor=style.colour(slot.system),
        markerfacecolor="none",
        linestyle="none",
        clip_on=False,
        gid=tip,
        zorder=4,
    )


def _frame(panel: Panel, axes: Axes, slots: list[Slot], span: float, look: Look, width: float) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    middle = (slots[-1].centre + 0.5) / 2 if slots else 0.0
    values = [one for slot in slots for one in (slot.value, slot.printed) if math.isfinite(one)]
    top = max([slot.reach for slot in slots if math.isfinite(slot.reach)] + [panel.full or 0.0])
    axes.set_xlim(middle - span / 2, middle + span / 2)
    if panel.logarithmic:
        lowest = min(values, default=1.0)
        axes.set_yscale("log")
        axes.set_ylim(lowest / 2.5, max(top, lowest) * (3 if look.values else 1.5))
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, (top or 1.0) * (1.24 if look.values else 1.1))
    residency = panel.axis == "residency"
    groups = {x: [slot.centre for slot in slots if slot.x == x] for x in dict.fromkeys(slot.x for slot in slots)}
    centres = [sum(group) / len(group) for group in groups.values()]
    axes.set_xticks(centres, [f"{x:.0%}" if residency else f"{x:g}" for x in groups])
    if look.axis:
        axes.set_xlabel("Experts on the device" if residency else "Batch size")
    if look.unit:
        axes.set_ylabel(panel.unit)
    if look.heading:
        _heading(panel, axes, width)
    if panel.full is not None:
        axes.axhline(panel.full, color=style.INK, linewidth=1.1, linestyle=(0, (5, 2.5)), zorder=1)
        text = "full load" if panel.full == 100.0 or not look.values else f"full load {panel.full:.{panel.digits}f}"
        axes.annotate(text, (0, panel.full), xycoords=("axes fraction", "data"),
                      xytext=(2, 3), textcoords="offset points", fontsize=8.0, color=style.INK)  # fmt: skip


def _heading(panel: Panel, axes: Axes, width: float) -> None:
    """The title, and below it the note in as many lines as it needs at this width."""
    lines = textwrap.wrap(panel.note, max(20, int(72 * (width - 0.6) / _NOTE_LETTER)))
    axes.set_title(panel.title, loc="left", fontweight="bold", pad=11 + _NOTE_LINE * max(len(lines), 1))
    note = axes.annotate("\n".join(lines), (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
                         fontsize=7.5, color=style.MUTED, linespacing=1.15)  # fmt: skip
    # The title has made room for it.
    note.set_in_layout(False)


def _tip(panel: Panel, slot: Slot) -> str:
    where = f"{slot.x:.0%} of the experts" if panel.axis == "residency" else f"batch {slot.x:g}"
    paper = f"; the paper prints {slot.printed:g}" if math.isfinite(slot.printed) else ""
    if not slot.ran:
        return f"{slot.system}, {where}: {slot.status.replace('_', ' ') or 'not run'}{paper}. {slot.note}".strip()
    interval = f" [{slot.low:.2f}, {slot.high:.2f}]" if slot.has_interval else ""
    return f"{slot.system}, {where}: {slot.value:.2f}{interval} {panel.unit}{paper}"
