"""Figure 4: what the way of execution costs when every expert is resident."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import Summary, compare, summarize
from seqmoe.report import style

MODES = {"eager": "Eager", "sync": "Sync", "graph": "Graph"}
_COLOURS = {"eager": "#ca9161", "sync": "#56b4e9", "graph": "#d55e00"}
_PRINTED = {"Eager": "eager", "Sync": "sync", "CG": "graph"}
_WIDTH = 0.72


@dataclass(frozen=True, slots=True)
class Row:
    """One mode: its throughput over the repeats, or why there is none."""

    mode: str
    tok_s: tuple[float, ...]
    reason: str = ""

    @property
    def summary(self) -> Summary | None:
        """Median and interval; None where nothing ran."""
        return summarize(self.tok_s) if self.tok_s else None


class Figure4:
    """Records of full load in several modes, and the paper's claims."""

    def __init__(self, records: Iterable[Record], claims: pd.DataFrame) -> None:
        found: dict[str, list[Record]] = {}
        for record in records:
            if record.cell.execution in MODES:
                found.setdefault(record.cell.execution, []).append(record)
        self.rows = [_row(mode, found[mode]) for mode in MODES if mode in found]
        self._claims = claims

    def printed(self) -> dict[str, dict[str, float]]:
        """The paper's tok/s by model and mode."""
        found: dict[str, dict[str, float]] = {}
        for _, claim in self._claims[self._claims["figure"].astype(str) == "4"].iterrows():
            for name, mode in _PRINTED.items():
                if claim["id"] == f"graph-{name}-{claim['model']}":
                    found.setdefault(str(claim["model"]), {})[mode] = float(claim["value"])
        return found

    def sentences(self) -> list[str]:
        """How much faster each mode is than the one before it, and what the paper prints."""
        ran = [row for row in self.rows if row.tok_s]
        found = []
        for slower, faster in itertools.pairwise(ran):
            result = compare(faster.tok_s, slower.tok_s)
            verdict = "faster" if result.faster else f"not to be called faster ({result.reason})"
            printed = ", ".join(
                f"{model} {modes[faster.mode] / modes[slower.mode]:.2f}" for model, modes in self.printed().items()
            )
            found.append(
                f"{MODES[faster.mode]} is {verdict} than {MODES[slower.mode]} here: {result.ratio:.2f} times the "
                f"tokens per second; the paper prints {printed}."
            )
        found += [f"{MODES[row.mode]}: {row.reason}." for row in self.rows if not row.tok_s]
        return found

    def draw_observed(self, axes: Axes) -> dict[str, str]:
        """Bars with intervals; what did not run has its reason."""
        tips: dict[str, str] = {}
        top = max([found.high for row in self.rows if (found := row.summary) is not None], default=1.0)
        for place, row in enumerate(self.rows):
            found = row.summary
            tip = f"tip-{len(tips)}"
            if found is None:
                tips[tip] = f"{MODES[row.mode]}: {row.reason}"
                axes.plot([place], [0.03 * top], marker="x", color=style.MUTED, linestyle="none", gid=tip)
                continue
            tips[tip] = f"{MODES[row.mode]}: {found.median:.1f} tok/s [{found.low:.1f}, {found.high:.1f}]"
            axes.bar(place, found.median, _WIDTH, color=_COLOURS[row.mode], gid=tip, zorder=2)
            if found.count > 1:
                error = [[found.median - found.low], [found.high - found.median]]
                axes.errorbar(
                    [place], [found.median], yerr=error, color=style.INK, elinewidth=1.0, capsize=2.2, zorder=4
                )
            _text(axes, place, found.high, f"{found.median:.0f}")
        _frame(axes, [MODES[row.mode] for row in self.rows], top, "Observed here, measured, CPU",
               "reference model, all experts resident, batch 1")  # fmt: skip
        return tips

    def draw_printed(self, axes: Axes, model: str) -> dict[str, str]:
        """The paper's bars of one model."""
        tips: dict[str, str] = {}
        modes = self.printed()[model]
        for place, mode in enumerate(MODES):
            tip = f"tip-{len(tips)}"
            tips[tip] = f"{MODES[mode]}: {modes[mode]} tok/s, printed in the paper"
            axes.bar(place, modes[mode], _WIDTH, color=style.PAPER, zorder=1.9)
            axes.bar(place, modes[mode], _WIDTH, color=_COLOURS[mode], alpha=0.3, gid=tip, zorder=2)
            ends = (place - _WIDTH / 2, place + _WIDTH / 2)
            axes.plot(ends, [modes[mode]] * 2, color=style.INK, linewidth=2.2, zorder=3)
            _text(axes, place, modes[mode], f"{modes[mode]:.1f}")
        _frame(axes, list(MODES.values()), max(modes.values()), f"{model}, paper", "all experts resident, batch 1")
        return tips

    def figure(self) -> Figure:
        """Ours and the paper's two, side by side. Call it inside `seqmoe.report.style.theme`."""
        models = list(self.printed())
        sheet = Figure(figsize=(4.1 * (1 + len(models)), 3.6), layout="constrained")
        axes = sheet.subplots(1, 1 + len(models), squeeze=False)[0]
        self.draw_observed(axes[0])
        for place, model in zip(axes[1:], models, strict=True):
            self.draw_printed(place, model)
        return sheet

    def table(self) -> pd.DataFrame:
        """Every number, observed and printed."""
        rows: list[dict[str, object]] = []
        for row in self.rows:
            found = row.summary
            values = (found.median, found.low, found.high, found.count) if found else (np.nan, np.nan, np.nan, 0)
            rows.append({"lane": "measured", "model": "reference", "mode": row.mode, "reason": row.reason}
                        | dict(zip(("tok_s", "low", "high", "repeats"), values, strict=True)))  # fmt: skip
        for model, modes in self.printed().items():
            rows += [{"lane": "paper", "model": model, "mode": mode, "tok_s": value} for mode, value in modes.items()]
        return pd.DataFrame(rows)


def _row(mode: str, records: list[Record]) -> Row:
    values = [value for record in records if isinstance(value := metrics.decode_tok_s(record), float)]
    return Row(mode, tuple(values), "" if values else str(records[-1].status))


def _text(axes: Axes, place: float, height: float, text: str) -> None:
    axes.annotate(text, (place, height), xytext=(0, 3), textcoords="offset points", ha="center", va="bottom",
                  fontsize=8.5, color=style.INK)  # fmt: skip


def _frame(axes: Axes, names: list[str], top: float, title: str, note: str) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, 2.6)
    axes.set_ylim(0, 1.18 * top)
    axes.set_ylabel("Decode (tok/s)")
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    text = axes.annotate(note, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
                         fontsize=7.5, color=style.MUTED)  # fmt: skip
    text.set_in_layout(False)
