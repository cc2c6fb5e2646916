"""Figure 6 as simulated: the paper's grid with our simulator's bars, and the paper's values as ticks on them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from seqmoe.report.bar_sheet import grid_sheet
from seqmoe.report.figure6 import SIMULATED
from seqmoe.report.figure6_printed import FULL, GROUPS, Printed, Row
from seqmoe.report.panel import COLUMNS, Panel
from seqmoe.spec.paths import Home

_OURS = "SeqMoE"


def _brief(group: str) -> str:
    return GROUPS.get(group, group).partition(", by")[0].lower()


class Figure6Simulated:
    """Panels over the simulated cells of a summary (`seqmoe.report.summary.summarise`), and the paper's bars."""

    def __init__(self, summary: pd.DataFrame, bars: pd.DataFrame, home: Home) -> None:
        # Of one cell that several hosts computed the last counts: simulated time is no machine's own.
        cells = summary[summary["lane"] == SIMULATED]
        self.cells = cells.drop_duplicates("cell_key", keep="last").reset_index(drop=True)
        self._printed = Printed(bars, home)
        names = {name: self._printed.profile(name) for name in self.cells["hardware"].unique()}
        self._hardware = {name: self._printed.short(found) if found else name for name, found in names.items()}

    def grid(self) -> list[Row]:
        """The paper's rows and models; a panel for which nothing was simulated is the paper's own."""
        return [
            Row(title, tuple(self._panel(group, model) for model in self._printed.models(group)))
            for group, title in GROUPS.items()
        ]

    def beyond(self) -> list[Panel]:
        """Systems that the paper's figure does not have, beside SeqMoE, and machines and models that it does not."""
        printed = self._printed.bars
        panels = []
        for (group, model, hardware), rows in self.cells.groupby(["panel", "model_title", "hardware"], sort=False):
            theirs = printed[(printed["panel"] == group) & (printed["model"] == model)]
            known = set(theirs["system"]) if self._hardware[hardware] in set(theirs["hardware"]) else set()
            if set(rows["system_title"]) - known - {FULL}:
                panels.append(self._bars(str(group), rows, sorted(set(rows["system_title"]) - known | {_OURS, FULL})))
        return panels

    def table(self) -> pd.DataFrame:
        """One row for every simulated cell and every printed bar."""
        return pd.concat([self.cells.drop(columns=["cell_key", "hint"]), self._printed.table()], ignore_index=True)

    def figure(self) -> Figure:
        """The grid on one sheet. Call it inside `seqmoe.report.style.theme`."""
        return grid_sheet([(row.title, row.panels) for row in self.grid()])

    def _panel(self, group: str, model: str) -> Panel:
        printed = self._printed.panel(group, model)
        cells = self.cells
        own = cells[(cells["panel"] == group) & (cells["model_title"] == model)]
        own = own[own["hardware"].map(self._hardware) == printed.note]
        if own.empty:
            return printed
        panel = self._bars(group, own, list(printed.systems))
        ticks = {
            (str(bar["system"]), float(bar["x"])): float(bar["value"])
            for _, bar in printed.bars[printed.bars["value"].notna()].iterrows()
        }
        there = set(zip(panel.bars["system"], panel.bars["x"], strict=True))
        alone = [
            dict.fromkeys(("value", "low", "high"), float("nan")) | {"system": s, "x": x, "status": "", "note": ""}
            for s, x in ticks
            if (s, x) not in there
        ]
        bars = pd.concat([panel.bars, pd.DataFrame(alone)[list(COLUMNS)]], ignore_index=True) if alone else panel.bars
        return replace(panel, bars=bars, title=model, note=printed.note, printed=ticks)

    def _bars(self, group: str, rows: pd.DataFrame, systems: list[str]) -> Panel:
        first = rows.iloc[0]
        metric = "ttft_s" if group == "ttft" else "tok_s"
        full = rows.loc[(rows["system_title"] == FULL) & rows["tok_s"].notna(), "tok_s"]
        kept = rows[rows["system_title"].isin(systems) & (rows["system_title"] != FULL)]
        bars = pd.DataFrame(
            {
                "system": kept["system_title"],
                "x": kept["batch" if group == "batch" else "residency"].astype(float),
                "value": kept[metric],
                "low": float("nan"),
                "high": float("nan"),
                "status": kept["status"],
                "note": kept["reason"],
            }
        )
        return Panel(
            title=f"{first['model_title']}, simulated",
            note=f"{self._hardware[str(first['hardware'])]}, {_brief(group)}",
            lane=SIMULATED,
            axis="batch_size" if group == "batch" else "residency",
            unit="TTFT (s)" if group == "ttft" else "Decode (tok/s)",
            bars=bars[list(COLUMNS)].reset_index(drop=True),
            # Batches have a full load each, which the paper does not print.
            full=float(full.iloc[-1]) if group not in ("ttft", "batch") and len(full) else None,
            logarithmic=group == "ttft",
            digits=2 if group == "ttft" else 1,
        )
