"""The bars of figure 4: one for each way of execution, in one lane, with the paper's value as a tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from seqmoe.harness.statistics import Summary
from seqmoe.report import style
from seqmoe.report.drawing import tick

_COLOURS = {"eager": "#ca9161", "sync": "#56b4e9", "graph": "#d55e00"}
_WIDTH = 0.72


@dataclass(frozen=True, slots=True)
class Bar:
    """One mode: what was found or why nothing was, and what the paper prints."""

    mode: str
    title: str
    found: Summary | None
    reason: str = ""
    printed: float | None = None

    @property
    def reach(self) -> float:
        """The highest point that is drawn."""
        return max(self.found.high if self.found else 0.0, self.printed or 0.0)


def draw_bars(axes: Axes, bars: Sequence[Bar], lane: str, title: str, note: str) -> dict[str, str]:
    """Draw the bars; returns the words to show over each, by its id in an SVG. The paper's lane has ticks alone."""
    tips: dict[str, str] = {}
    top = max([bar.reach for bar in bars], default=1.0) or 1.0
    for place, bar in enumerate(bars):
        tip = f"tip-{place}"
        tips[tip] = _tip(bar, lane)
        if bar.found is not None:
            hatch = "////" if lane == "simulated" else ""
            axes.bar(place, bar.found.median, _WIDTH, color=_COLOURS[bar.mode], hatch=hatch, edgecolor=style.INK,
                     linewidth=0.6 if hatch else 0.0, gid=tip, zorder=2)  # fmt: skip
            _interval(axes, place, bar.found)
        elif lane == "paper" and bar.printed is not None:
            axes.bar(place, bar.printed, _WIDTH, color=_COLOURS[bar.mode], alpha=0.3, gid=tip, zorder=2)
        else:
            axes.plot([place], [0.03 * top], marker="x", color=style.MUTED, linestyle="none", gid=tip)
        if bar.printed is not None:
            tick(axes, place, _WIDTH, bar.printed)
        if bar.found is not None or bar.printed is not None:
            _text(axes, place, bar)
    _frame(axes, [bar.title for bar in bars], top, title, note)
    return tips


def _interval(axes: Axes, place: int, found: Summary) -> None:
    if found.count > 1:
        error = [[found.median - found.low], [found.high - found.median]]
        axes.errorbar([place], [found.median], yerr=error, color=style.INK, elinewidth=1.0, capsize=2.2, zorder=4)


def _text(axes: Axes, place: int, bar: Bar) -> None:
    """Our value, and the printed one in brackets below it; alone where there is only one."""
    if bar.found is None:
        text = f"{bar.printed:g}"
    elif bar.printed is None:
        text = f"{bar.found.median:.0f}"
    else:
        text = f"{bar.found.median:.1f}\n({bar.printed:g})"
    axes.annotate(text, (place, bar.reach), xytext=(0, 3), textcoords="offset points", ha="center", va="bottom",
                  fontsize=8.5, color=style.INK)  # fmt: skip


def _tip(bar: Bar, lane: str) -> str:
    printed = "" if bar.printed is None else f"{bar.printed:g} tok/s printed in the paper"
    if bar.found is None:
        return f"{bar.title}: {bar.reason or printed or 'not run'}"
    interval = f" [{bar.found.low:.1f}, {bar.found.high:.1f}]" if bar.found.count > 1 else ""
    return f"{bar.title}: {bar.found.median:.1f} tok/s{interval}, {lane}" + (f"; {printed}" if printed else "")


def _frame(axes: Axes, names: list[str], top: float, title: str, note: str) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, max(len(names) - 0.4, 2.6))
    axes.set_ylim(0, 1.22 * top)
    axes.set_ylabel("Decode (tok/s)")
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    text = axes.annotate(note, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
                         fontsize=7.5, color=style.MUTED)  # fmt: skip
    text.set_in_layout(False)
