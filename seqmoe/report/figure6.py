"""Figure 6 as observed: decode throughput and time to first token, measured or emulated, with the paper's ticks."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from seqmoe.report import style
from seqmoe.report.bar_sheet import bar_sheet
from seqmoe.report.figure6_printed import SHARE, Printed
from seqmoe.report.panel import COLUMNS, Panel
from seqmoe.spec.hardware import HardwareProfile
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import random_label

SIMULATED = "simulated"
_SPLIT = [
    "host", "device", "lane", "hardware", "model", "panel", "dataset", "prompts", "decode_tokens", "seed", "weights",
    "layers",
]  # fmt: skip
# The re-implemented LRU has FreeToken's policy, so the paper's bars of FreeToken stand over it.
_TICKS = {"seqmoe": "SeqMoE", "lru": "FreeToken"}
_PRINTED_PREDICTOR = "mamba2"


class Figure6:
    """Panels over a summary of records (`seqmoe.report.summary.summarise`) and the paper's bars."""

    def __init__(self, summary: pd.DataFrame, bars: pd.DataFrame, home: Home) -> None:
        self._everything = summary
        self._summary = summary[summary["lane"] != SIMULATED]
        self._printed = Printed(bars, home)

    def observed(self) -> list[Panel]:
        """One panel per lane, model and workload."""
        panels: list[Panel] = []
        for _, rows in self._summary.groupby(_SPLIT, sort=False):
            for part in _by_held_residency(rows) if rows.iloc[0]["panel"] == "batch" else [rows]:
                panels.append(self._observed(part))
        return panels

    def table(self) -> pd.DataFrame:
        """Everything that figure 6 draws in any lane, observed and printed, one row per bar or marker."""
        ours = self._everything.drop(columns=["cell_key", "hint"])
        return pd.concat([ours, self._printed.table()], ignore_index=True)

    def figure(self) -> Figure:
        """All panels on one sheet; without any, the paper's own. Call it inside `seqmoe.report.style.theme`."""
        return bar_sheet(self.observed()) if len(self._summary) else self._printed.figure()

    def _observed(self, rows: pd.DataFrame) -> Panel:
        first = rows.iloc[0]
        lane, group = str(first["lane"]), str(first["panel"])
        metric, unit, digits = ("tok_s", "Decode (tok/s)", 1)
        if group == "ttft":
            metric, unit, digits = "ttft_s", "TTFT (s)", 2
        elif lane == "emulated":
            metric, unit, digits = "share", SHARE, 1
        scale = 100.0 if metric == "share" else 1.0
        bars = pd.DataFrame(
            {
                "system": rows["system_title"],
                "x": rows["batch" if group == "batch" else "residency"].astype(float),
                "value": rows[metric] * scale,
                "low": rows[f"{metric}_low"] * scale,
                "high": rows[f"{metric}_high"] * scale,
                "status": rows["status"],
                "note": rows["reason"],
            }
        )
        full = None
        if metric == "share":
            bars, full = bars[bars["system"] != "FullLoad"], 100.0
        origin = f", {random_label(int(first['layers']))}" if first["weights"] else ""
        panel = Panel(
            title=f"{first['model_title']}, {style.lane_text(lane, first['device'])}{origin}",
            note=self._note(rows),
            lane=lane,
            axis="batch_size" if group == "batch" else "residency",
            unit=unit,
            bars=bars[list(COLUMNS)].reset_index(drop=True),
            full=full,
            logarithmic=group == "ttft",
            digits=digits,
        )
        return self._ticked(panel, rows) if metric == "share" else panel

    def _ticked(self, panel: Panel, rows: pd.DataFrame) -> Panel:
        """With the paper's shares of full load for the workload that the profile stands for."""
        first = rows.iloc[0]
        title, shares = self._printed.shares(str(first["panel"]), str(first["hardware"]))
        ours = rows[rows["system"].isin(_TICKS)]
        # The paper's SeqMoE forecasts with Mamba2; where a row here does so, the tick is that row's.
        theirs = ours["predictor"] == _PRINTED_PREDICTOR
        for system in _TICKS:
            same = ours["system"] == system
            if (same & theirs).any():
                ours = ours[~same | theirs]
        ticks = {
            (str(row["system_title"]), float(row["residency"])): shares[name, float(row["residency"])]
            for _, row in ours.iterrows()
            if (name := _TICKS[row["system"]], float(row["residency"])) in shares
        }
        return replace(panel, printed=ticks, note=f"{panel.note}; ticks: the paper's {title}") if ticks else panel

    def _note(self, rows: pd.DataFrame) -> str:
        """Where it ran, and what else tells this panel from the others."""
        tokens = f", {rows.iloc[0]['decode_tokens']} tokens" if self._summary["decode_tokens"].nunique() > 1 else ""
        return f"{self._where(rows)}{tokens}"

    def _where(self, rows: pd.DataFrame) -> str:
        row = rows.iloc[0]
        if row["hardware"] == "host":
            return "this host" if self._summary["host"].nunique() == 1 else str(row["host"])
        profile: HardwareProfile | None = self._printed.profile(str(row["hardware"]))
        replayed = row["routing"] == "replay"
        # Both do not fit above one panel; the table has what was reached.
        ratio = _ratio(rows).partition(" (")[0] + ", replayed" if replayed else _ratio(rows)
        return f"{self._printed.short(profile) if profile else row['hardware']}{ratio}"


def _ratio(rows: pd.DataFrame) -> str:
    """The overlap ratio, in experts that cross the link per layer of full-load computation: asked for and reached."""
    asked, reached = rows["overlap_ratio"].dropna(), rows["overlap_achieved"].dropna()
    if asked.empty:
        return ""
    ends = dict.fromkeys(f"{value:.2f}" for value in (reached.min(), reached.max())) if len(reached) else {}
    return f", {asked.median():.2f} experts a layer" + (f" (reached {'-'.join(ends)})" if ends else "")


def _by_held_residency(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Parts of a batch experiment with one residency each; full load belongs to all of them."""
    held = rows[rows["residency"] < 1.0]["residency"].unique()
    return [rows[(rows["residency"] == r) | (rows["residency"] == 1.0)] for r in held] or [rows]
