"""Figure 4: what the way of execution costs when every expert is resident."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import Summary, compare, summarize
from seqmoe.report.figure4_bars import Bar, draw_bars

MODES = {"eager": "Eager", "sync": "Sync", "graph": "Graph"}
_PRINTED = {"Eager": "eager", "Sync": "sync", "CG": "graph"}
# What a simulated system executes, where its cell names no mode: full load is the decode step as one graph.
_SYSTEMS = {"eager": "eager", "sync": "sync", "full": "graph"}
SIMULATED = "simulated"
_RESIDENT = "all experts resident, batch 1"

Drawing = Callable[[Axes], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Row:
    """One mode: its throughput over the repeats, or why there is none. ``model`` is a title, empty for our own."""

    mode: str
    tok_s: tuple[float, ...]
    reason: str = ""
    model: str = ""

    @property
    def summary(self) -> Summary | None:
        """Median and interval; None where nothing ran."""
        return summarize(self.tok_s) if self.tok_s else None


class Figure4:
    """Records of full load in several modes, and the paper's claims; ``title_of`` gives a model's title by its name."""

    def __init__(self, records: Iterable[Record], claims: pd.DataFrame, title_of: Callable[[str], str] = str) -> None:
        found: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            cell = record.cell
            if cell.lane == SIMULATED and cell.system in _SYSTEMS:
                found.setdefault((title_of(cell.model), _SYSTEMS[cell.system]), []).append(record)
            elif cell.lane != SIMULATED and cell.execution in MODES:
                found.setdefault(("", cell.execution), []).append(record)
        self.rows = [_row(mode, found["", mode]) for mode in MODES if ("", mode) in found]
        models = list(dict.fromkeys(model for model, _ in found if model))
        self.simulated = {
            model: [_row(mode, found[model, mode], model) for mode in MODES if (model, mode) in found]
            for model in models
        }
        self._claims = claims

    @property
    def recorded(self) -> bool:
        """Whether anything was run."""
        return bool(self.rows or self.simulated)

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

    def drawings(self) -> list[Drawing]:
        """What was measured, then each model of the paper: simulated with printed values as ticks, or as printed."""
        drawings: list[Drawing] = [self._measured] if self.rows else []
        for model in dict.fromkeys([*self.printed(), *self.simulated]):
            drawings.append(lambda axes, model=model: self._of_model(axes, model))  # type: ignore[misc]
        return drawings

    def figure(self) -> Figure:
        """Ours and the paper's models, side by side. Call it inside `seqmoe.report.style.theme`."""
        drawings = self.drawings()
        sheet = Figure(figsize=(3.4 * len(drawings), 3.4), layout="constrained")
        for draw, axes in zip(drawings, sheet.subplots(1, len(drawings), squeeze=False)[0], strict=True):
            draw(axes)
        return sheet

    def table(self) -> pd.DataFrame:
        """Every number, observed and printed."""
        rows: list[dict[str, object]] = []
        for row in [*self.rows, *(row for rows in self.simulated.values() for row in rows)]:
            found = row.summary
            values = (found.median, found.low, found.high, found.count) if found else (np.nan, np.nan, np.nan, 0)
            lane = SIMULATED if row.model else "measured"
            rows.append({"lane": lane, "model": row.model or "reference", "mode": row.mode, "reason": row.reason}
                        | dict(zip(("tok_s", "low", "high", "repeats"), values, strict=True)))  # fmt: skip
        for model, modes in self.printed().items():
            rows += [{"lane": "paper", "model": model, "mode": mode, "tok_s": value} for mode, value in modes.items()]
        return pd.DataFrame(rows)

    def _measured(self, axes: Axes) -> dict[str, str]:
        bars = [Bar(row.mode, MODES[row.mode], row.summary, row.reason) for row in self.rows]
        return draw_bars(axes, bars, "measured", "Reference model, measured, CPU", _RESIDENT)

    def _of_model(self, axes: Axes, model: str) -> dict[str, str]:
        printed, rows = self.printed().get(model, {}), {row.mode: row for row in self.simulated.get(model, [])}
        lane = SIMULATED if rows else "paper"
        bars = [
            Bar(mode, title, row.summary if row else None, row.reason if row else "", printed.get(mode))
            for mode, title in MODES.items()
            if (row := rows.get(mode)) or mode in printed
        ]
        note = _RESIDENT if lane == "paper" or not printed else f"{_RESIDENT}; ticks and brackets: paper"
        return draw_bars(axes, bars, lane, f"{model}, {lane}", note)


def _row(mode: str, records: list[Record], model: str = "") -> Row:
    values = [value for record in records if isinstance(value := metrics.decode_tok_s(record), float)]
    return Row(mode, tuple(values), "" if values else str(records[-1].status), model)
