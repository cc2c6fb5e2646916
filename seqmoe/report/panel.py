"""One panel: bars of one lane and one unit, grouped along one axis. Two lanes never meet on an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from seqmoe.report import style

COLUMNS = ("system", "x", "value", "low", "high", "status", "note")
_MARKERS = {"unsupported": "x", "not_installed": "o"}
_FAILED = "^"
# In units of one bar: the space between groups, and the width of a bar that is not there.
_GAP = 0.9
_ABSENT_PITCH = 0.6
# The least width of a panel, so that two bars are not two blocks.
LEAST_SPAN = 9.0


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """``bars`` has the columns `COLUMNS`: one row per system and place on the axis, ``value`` NaN where nothing ran.

    ``axis`` is "residency" or "batch_size"; ``full`` draws the dashed full-load line; ``note`` is the small second line
    of the title; ``logarithmic`` is for times to first token. ``printed`` are the paper's values by system and place on
    the axis, drawn as black ticks over our bars; a row with neither value nor status is there for its tick alone.
    """

    title: str
    note: str
    lane: str
    axis: str
    unit: str
    bars: pd.DataFrame
    full: float | None = None
    logarithmic: bool = False
    digits: int = 1
    printed: Mapping[tuple[str, float], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.lane not in style.LANES:
            raise ValueError(f"lane {self.lane!r} has no drawing; valid: {', '.join(style.LANES)}")
        if tuple(self.bars.columns) != COLUMNS:
            raise ValueError(f"columns {tuple(self.bars.columns)}; expected {COLUMNS}")

    @property
    def systems(self) -> list[str]:
        """Systems of the panel in drawing order."""
        return style.in_order(self.bars["system"])

    @property
    def statuses(self) -> set[str]:
        """Statuses of what was not drawn as a bar."""
        return set(self.bars.loc[self.bars["value"].isna(), "status"]) - {""}


def marker(status: str) -> str:
    """The marker of a cell that gave no value: a cross as in the paper, a ring, or a triangle for a failure."""
    return _MARKERS.get(status, _FAILED)


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a panel: its bar, and where its centre is, in units of one bar."""

    centre: float
    system: str
    x: float
    value: float
    low: float
    high: float
    status: str
    note: str
    printed: float = math.nan

    @property
    def ran(self) -> bool:
        """Whether there is a value."""
        return math.isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether several repeats gave an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def reach(self) -> float:
        """The highest point that is drawn; NaN where nothing is."""
        ends = (self.high if self.has_interval else self.value, self.printed)
        return max((end for end in ends if math.isfinite(end)), default=math.nan)


def span_of(panel: Panel) -> float:
    """How wide a panel is in units of one bar, `LEAST_SPAN` at least."""
    slots = slots_of(panel)
    return max(slots[-1].centre + 1.0 if slots else 0.0, LEAST_SPAN)


def slots_of(panel: Panel) -> list[Slot]:
    """The bars from left to right; a group in which nothing ran is drawn closer."""
    order = {name: index for index, name in enumerate(panel.systems)}
    bars = panel.bars.assign(order=panel.bars["system"].map(order)).sort_values(["x", "order"], ignore_index=True)
    slots: list[Slot] = []
    cursor = 0.0
    for _, group in bars.groupby("x", sort=True):
        ticks = [panel.printed.get(place, math.nan) for place in zip(group["system"], group["x"], strict=True)]
        pitch = 1.0 if group["value"].notna().any() or any(map(math.isfinite, ticks)) else _ABSENT_PITCH
        for index, (bar, tick) in enumerate(zip(group[list(COLUMNS)].to_numpy(dtype=object), ticks, strict=True)):
            slots.append(replace(Slot(cursor + pitch * (index + 0.5), *bar), printed=tick))
        cursor += pitch * len(group) + _GAP
    return slots
