"""Figure 6: decode throughput and time to first token, what was observed here above what the paper prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from seqmoe.report import style
from seqmoe.report.drawing import draw
from seqmoe.report.panel import COLUMNS, Panel, marker
from seqmoe.report.paper import shares_of_full_load
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile, load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import random_label

_GROUPS = {
    "decode-short": "Decode length 128-1024",
    "decode-long": "Decode length 4096-8192",
    "batch": "Batches, 35% of the experts on the device",
    "ttft": "Time to first token, prompt of 1,024 tokens",
}
_SPLIT = [
    "host", "device", "lane", "hardware", "model", "panel", "dataset", "prompts", "decode_tokens", "seed", "weights",
    "layers",
]  # fmt: skip
_ACROSS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that stand side by side under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Figure6:
    """Panels over a summary of records (`seqmoe.report.summary.summarise`) and the paper's bars."""

    def __init__(self, summary: pd.DataFrame, bars: pd.DataFrame, home: Home) -> None:
        self._summary = summary
        self._bars = bars
        self._home = home

    def observed(self) -> list[Panel]:
        """One panel per lane, model and workload; an emulated one has the paper's shares in a panel at its side."""
        panels: list[Panel] = []
        for _, rows in self._summary.groupby(_SPLIT, sort=False):
            first = rows.iloc[0]
            for part in _by_held_residency(rows) if first["panel"] == "batch" else [rows]:
                panels.append(self._observed(part))
            if first["lane"] in ("emulated", "simulated") and first["panel"] in ("decode-short", "decode-long"):
                beside = self._paper_shares(first["panel"], first["hardware"])
                panels.extend(p for p in beside if p.title not in {q.title for q in panels})
        return panels

    def paper(self) -> list[Row]:
        """The paper's grid: one row per experiment group, one panel per model."""
        return [Row(_GROUPS[group], tuple(self._paper_panels(group))) for group in _GROUPS]

    def table(self) -> pd.DataFrame:
        """Everything that the figure draws, observed and printed, one row per bar or marker."""
        ours = self._summary.drop(columns=["cell_key", "hint"])
        printed = pd.DataFrame(
            {
                "panel": self._bars["panel"],
                "lane": "paper",
                "hardware": self._bars["hardware"],
                "model": self._bars["model"],
                "system": self._bars["system"],
                "residency": self._bars["x"].where(self._bars["axis"] == "residency"),
                "batch": self._bars["x"].where(self._bars["axis"] == "batch_size"),
                "tok_s": self._bars["value"].where(self._bars["metric"] == "decode_tok_s"),
                "ttft_s": self._bars["value"].where(self._bars["metric"] == "ttft_s"),
                "status": self._bars["supported"].map({True: "ok", False: "unsupported"}),
            }
        )
        return pd.concat([ours, printed], ignore_index=True)

    def figure(self) -> Figure:
        """All panels on one sheet. Call it inside `seqmoe.report.style.theme`."""
        observed = self.observed()
        rows = [
            Row("Observed here" if start == 0 else "", tuple(observed[start : start + _ACROSS]))
            for start in range(0, len(observed), _ACROSS)
        ]
        rows += [Row(f"The paper: {row.title[0].lower()}{row.title[1:]}", row.panels) for row in self.paper()]
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        sheet = Figure(figsize=(4.1 * _ACROSS, 3.5 * len(rows) + 1.0), layout=layout)
        bands = sheet.subfigures(len(rows) + 1, 1, squeeze=False, height_ratios=[0.28, *[1.0] * len(rows)])[:, 0]
        _legend(bands[0], [panel for row in rows for panel in row.panels])
        for band, row in zip(bands[1:], rows, strict=True):
            band.suptitle(row.title, x=0.006, ha="left", fontsize=12, fontweight="bold", color=style.INK)
            for axes, panel in zip(band.subplots(1, _ACROSS, squeeze=False)[0], row.panels, strict=False):
                draw(panel, axes)
            for axes in band.axes[len(row.panels) :]:
                axes.set_axis_off()
        return sheet

    def _observed(self, rows: pd.DataFrame) -> Panel:
        first = rows.iloc[0]
        lane, group = str(first["lane"]), str(first["panel"])
        metric, unit, digits = ("tok_s", "Decode (tok/s)", 1)
        if group == "ttft":
            metric, unit, digits = "ttft_s", "TTFT (s)", 2
        elif lane in ("emulated", "simulated"):
            metric, unit, digits = "share", "Share of full load (%)", 1
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
        return Panel(
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

    def _note(self, rows: pd.DataFrame) -> str:
        """Where it ran, and how many tokens were decoded if that is not the same in all panels."""
        tokens = f", {rows.iloc[0]['decode_tokens']} tokens" if self._summary["decode_tokens"].nunique() > 1 else ""
        return f"{self._where(rows)}{tokens}"

    def _where(self, rows: pd.DataFrame) -> str:
        row = rows.iloc[0]
        if row["hardware"] == "host":
            return "this host" if self._summary["host"].nunique() == 1 else str(row["host"])
        profile = self._profile(str(row["hardware"]))
        replayed = row["routing"] == "replay"
        # Both do not fit above one panel; the table has what was reached.
        ratio = _ratio(rows).partition(" (")[0] + ", replayed" if replayed else _ratio(rows)
        return f"{_short(profile.title) if profile else row['hardware']}{ratio}"

    def _profile(self, name: str) -> HardwareProfile | None:
        try:
            return load_hardware(self._home, name)
        except InputError:
            # An old record may name a profile that is no longer declared; its numbers are still worth a panel.
            return None

    def _paper_shares(self, group: str, hardware: str) -> Iterator[Panel]:
        profile = self._profile(hardware)
        if profile is None:
            return
        title = load_model(self._home, profile.emulates).title
        shares = shares_of_full_load(self._bars)
        rows = shares[(shares["panel"] == group) & (shares["model"] == title)]
        if len(rows):
            yield Panel(
                title=f"{title}, paper",
                note=f"{_short(profile.title)}, {_GROUPS[group].lower()}",
                lane="paper",
                axis="residency",
                unit="Share of full load (%)",
                bars=_printed(rows.assign(value=rows["value"] * 100)),
                full=100.0,
            )

    def _paper_panels(self, group: str) -> Iterator[Panel]:
        rows = self._bars[self._bars["panel"] == group]
        for model, bars in rows.groupby("model", sort=False):
            full = bars.loc[bars["system"] == "FullLoad", "value"]
            yield Panel(
                title=str(model),
                note=str(bars.iloc[0]["hardware"]),
                lane="paper",
                axis=str(bars.iloc[0]["axis"]),
                unit="TTFT (s)" if group == "ttft" else "Decode (tok/s)",
                bars=_printed(bars[bars["system"] != "FullLoad"]),
                full=float(full.iloc[0]) if len(full) else None,
                logarithmic=group == "ttft",
            )


def _ratio(rows: pd.DataFrame) -> str:
    """The overlap ratio, in experts that cross the link per layer of full-load computation: asked for and reached."""
    asked, reached = rows["overlap_ratio"].dropna(), rows["overlap_achieved"].dropna()
    if asked.empty:
        return ""
    ends = dict.fromkeys(f"{value:.2f}" for value in (reached.min(), reached.max())) if len(reached) else {}
    return f", {asked.median():.2f} experts a layer" + (f" (reached {'-'.join(ends)})" if ends else "")


def _short(title: str) -> str:
    return title.removeprefix("NVIDIA ").split(",")[0]


def _printed(rows: pd.DataFrame) -> pd.DataFrame:
    status = rows["supported"].map({True: "ok", False: "unsupported"})
    drawn = rows.assign(low=float("nan"), high=float("nan"), status=status, note="")
    return drawn[list(COLUMNS)].reset_index(drop=True)


def _by_held_residency(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Parts of a batch experiment with one residency each; full load belongs to all of them."""
    held = rows[rows["residency"] < 1.0]["residency"].unique()
    return [rows[(rows["residency"] == r) | (rows["residency"] == 1.0)] for r in held] or [rows]


def _legend(band: SubFigure, panels: list[Panel]) -> None:
    systems = style.in_order(name for panel in panels for name in panel.systems)
    handles: list[Artist] = [Patch(facecolor=style.colour(name), label=name) for name in systems]
    lanes = {panel.lane for panel in panels}
    looks = {
        "measured": Patch(facecolor=style.GRID, label="measured"),
        "emulated": Patch(facecolor=style.GRID, edgecolor=style.INK, linestyle=(0, (1, 1.2)), label="emulated"),
        "simulated": Patch(facecolor=style.GRID, edgecolor=style.INK, hatch="////", label="simulated"),
        "paper": Line2D([], [], color=style.INK, linewidth=2.2, label="printed in the paper"),
    }
    handles += [look for lane, look in looks.items() if lane in lanes]
    for status in sorted({status for panel in panels for status in panel.statuses}):
        handles.append(
            Line2D([], [], marker=marker(status), color=style.MUTED, markerfacecolor="none", markeredgewidth=1.6,
                   linestyle="none", label=status.replace("_", " "))
        )  # fmt: skip
    band.legend(handles=handles, loc="center", ncols=8, frameon=False, handlelength=1.4, columnspacing=1.6)
