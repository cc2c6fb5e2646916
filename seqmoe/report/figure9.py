"""Figure 9: where the time of a decode step goes, here and in the paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from seqmoe.harness.record import Record
from seqmoe.report import style
from seqmoe.report.frame import system_title
from seqmoe.report.stacks import PARTS, Stack, draw_stacks

# Of the paper's ids, "breakdown-on-demand-stall-MODEL" and so on.
_PRINTED = {"computation": "computation", "predictor": "predictor", "management": "management",
            "on-demand-stall": "stall"}  # fmt: skip
MOST_OTHER = 0.05
# Where a model's name is broken in two lines: before its size or version.
_SPLIT = re.compile(r"-(?=V?\d)")


@dataclass(frozen=True, slots=True)
class Row:
    """The middle one of a cell's repeats. ``shares`` are of its decode time, by the names of `PARTS`, and add up to 1.

    ``pytorch`` is what the predictor's forecasts take in PyTorch, timed alone, relative to the decode time as well; NaN
    where they do not run in the core.
    """

    title: str
    residency: float
    repeats: int
    step_seconds: float
    shares: dict[str, float]
    hit_rate: float
    pytorch: float

    @property
    def times(self) -> float:
        """How many times as long as in the core the forecasts take in PyTorch; NaN where it is not known."""
        return self.pytorch / self.shares["predictor"] if self.shares["predictor"] > 0 else float("nan")

    @property
    def label(self) -> str:
        """Name and residency in two or three short lines."""
        name = self.title.removesuffix(" (FreeToken's policy)").replace(", ", "\n")
        return name if self.residency == 1.0 else f"{name}\n{self.residency:.0%}"


class Figure9:
    """Records of a suite of measured cells with timers, and the paper's claims."""

    def __init__(self, records: Iterable[Record], claims: pd.DataFrame) -> None:
        cells: dict[str, list[Record]] = {}
        for record in records:
            if record.status.ok and _seconds(record) > 0:
                cells.setdefault(record.cell_key, []).append(record)
        rows = [_row(found) for found in cells.values()]
        self.rows = sorted(rows, key=lambda row: (row.residency == 1.0, style.in_order([row.title]), row.residency))
        self._claims = claims

    def observed(self) -> list[Stack]:
        """One bar for each cell."""
        return [Stack(row.label, row.shares) for row in self.rows]

    def printed(self) -> list[Stack]:
        """The paper's bars, one for each model."""
        found: dict[str, dict[str, float]] = {}
        for _, claim in self._claims[self._claims["figure"].astype(str) == "9"].iterrows():
            for printed, part in _PRINTED.items():
                if claim["id"] == f"breakdown-{printed}-{claim['model']}":
                    found.setdefault(str(claim["model"]), {})[part] = float(claim["value"]) / 100
        return [Stack(_SPLIT.sub("\n", model, count=1), shares, printed=True) for model, shares in found.items()]

    def printed_mean(self, part: str) -> float:
        """The paper's mean share of the predictor or of management."""
        rows = self._claims.loc[self._claims["id"] == f"breakdown-{part}-mean", "value"]
        return float(rows.iloc[0]) / 100 if len(rows) else float("nan")

    def sentences(self) -> list[str]:
        """What the bars say, in words."""
        found = []
        late = [row for row in self.rows if row.shares["other"] > MOST_OTHER]
        ours = [row for row in self.rows if row.shares["predictor"] > 0]
        if ours:
            row = max(ours, key=lambda one: (one.residency, np.isfinite(one.pytorch)))
            both = row.shares["predictor"] + row.shares["management"]
            printed = f"{self.printed_mean('predictor'):.2%} + {self.printed_mean('management'):.2%}"
            found.append(
                f"{row.title} at {row.residency:.0%}: predictor {row.shares['predictor']:.2%} + management "
                f"{row.shares['management']:.2%} = {both:.1%} of the time; the paper prints {printed} on its GPUs."
            )
            if np.isfinite(row.pytorch):
                found.append(
                    f"Its predictor runs in the C++ core. In PyTorch the same forecasts take {row.times:.1f} times as "
                    f"long (timed alone), {row.pytorch:.1%} of this step of {1e3 * row.step_seconds:.1f} ms."
                )
        found += [f"{row.title} at {row.residency:.0%}: {row.shares['other']:.1%} is in no part." for row in late]
        return found

    def figure(self) -> Figure:
        """Observed bars above the printed ones. Call it inside `seqmoe.report.style.theme`."""
        sheet = Figure(figsize=(9.5, 8.2), layout="constrained")
        top, bottom = sheet.subplots(2, 1)
        self.draw_observed(top)
        draw_stacks(bottom, self.printed(), "The paper", "45% of the experts (40% for Qwen3.6), its own GPUs")
        handles = [Patch(facecolor=colour, label=name) for name, colour in PARTS.values()]
        sheet.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
        return sheet

    def draw_observed(self, axes: object) -> dict[str, str]:
        """The observed bars."""
        note = "reference model, real computation, link throttled to the RTX 4090's overlap ratio"
        return draw_stacks(axes, self.observed(), "Observed here, measured, CPU", note)  # type: ignore[arg-type]

    def table(self) -> pd.DataFrame:
        """Every share, observed and printed."""
        rows = [
            {"lane": "measured", "case": row.title, "residency": row.residency, "repeats": row.repeats,
             "step_seconds": row.step_seconds, **row.shares, "hit_rate": row.hit_rate,
             "predictor_pytorch": row.pytorch}
            for row in self.rows
        ]  # fmt: skip
        rows += [{"lane": "paper", "case": stack.label.replace("\n", "-"), **stack.shares} for stack in self.printed()]
        return pd.DataFrame(rows)


def _row(records: Sequence[Record]) -> Row:
    record = _middle(records)
    cell, stats, total = record.cell, record.observations.stats, _seconds(record)
    return Row(
        title=system_title(cell),
        residency=cell.residency,
        repeats=len(records),
        step_seconds=_step_seconds(record),
        shares={part: stats[f"{part}_seconds"] / total for part in PARTS},
        hit_rate=_number(stats.get("hit_rate")),
        pytorch=_number(stats.get("predictor_pytorch_seconds")) / total,
    )


def _middle(records: Sequence[Record]) -> Record:
    """The repeat whose step took the median time (of an even number, the shorter of the middle two).

    Medians of each part by itself would come from several repeats and add up to less or more than a step.
    """
    return sorted(records, key=_step_seconds)[(len(records) - 1) // 2]


def _step_seconds(record: Record) -> float:
    return _seconds(record) / float(record.observations.stats["timed_steps"])


def _seconds(record: Record) -> float:
    stats = record.observations.stats
    return float(sum(stats.get(f"{part}_seconds", 0.0) for part in PARTS)) if "timed_steps" in stats else 0.0


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")
