"""Stacked bars of shares: where time goes, one bar for each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from seqmoe.report import style

# From what a step is for to what is in its way.
PARTS = {
    "computation": ("computation", "#949494"),
    "predictor": ("predictor", "#d55e00"),
    "management": ("management", "#0173b2"),
    "stall": ("on-demand stall", "#de8f05"),
    "other": ("other", "#cc78bc"),
}
_WIDTH = 0.72
# A share below this has no room for its number.
_LEAST_TEXT = 0.036


@dataclass(frozen=True, slots=True)
class Stack:
    """One bar: shares by the names of `PARTS`, which add up to one at most; ``printed`` is the paper's."""

    label: str
    shares: Mapping[str, float]
    printed: bool = False


def draw_stacks(axes: Axes, stacks: Sequence[Stack], title: str, note: str) -> dict[str, str]:
    """Draw the bars side by side; returns the words to show over each piece, by its id in an SVG."""
    tips: dict[str, str] = {}
    for place, stack in enumerate(stacks):
        bottom = 0.0
        for part, (name, colour) in PARTS.items():
            share = stack.shares.get(part, 0.0)
            if share <= 0:
                continue
            tip = f"tip-{len(tips)}"
            tips[tip] = f"{stack.label}: {name} {share:.2%}" + (", printed in the paper" if stack.printed else "")
            axes.bar(place, share, _WIDTH, bottom, color=style.PAPER, zorder=1.9)
            axes.bar(
                place, share, _WIDTH, bottom, color=colour, alpha=0.45 if stack.printed else 1.0, gid=tip, zorder=2
            )
            if stack.printed:
                ends = (place - _WIDTH / 2, place + _WIDTH / 2)
                axes.plot(ends, [bottom + share] * 2, color=style.INK, linewidth=1.6, zorder=3)
            if share >= _LEAST_TEXT:
                axes.annotate(f"{share:.0%}", (place, bottom + share / 2), ha="center", va="center", fontsize=7.5,
                              color=style.INK, zorder=4)  # fmt: skip
            bottom += share
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xticks(range(len(stacks)), [stack.label for stack in stacks], fontsize=7.5)
    axes.set_xlim(-0.6, max(len(stacks) - 0.4, 3.0))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axes.set_ylabel("Share of decode time")
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    text = axes.annotate(note, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
                         fontsize=7.5, color=style.MUTED)  # fmt: skip
    text.set_in_layout(False)
    return tips
