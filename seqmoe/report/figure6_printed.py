"""Figure 6 as printed: the paper's grid of four experiments and four models, and its shares of full load."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from seqmoe.report.bar_sheet import grid_sheet
from seqmoe.report.panel import COLUMNS, Panel
from seqmoe.report.paper import shares_of_full_load
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile, load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home

GROUPS = {
    "decode-short": "Decode length 128-1024, by the share of experts on the device",
    "decode-long": "Decode length 4096-8192, by the share of experts on the device",
    "batch": "Batch sizes, 35% of the experts on the device",
    "ttft": "Time to first token, prompt of 1,024 tokens, by the share of experts on the device",
}
SHARE = "Share of full load (%)"
FULL = "FullLoad"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that stand side by side under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Printed:
    """The paper's bars, `seqmoe.report.paper.figure6_bars`."""

    def __init__(self, bars: pd.DataFrame, home: Home) -> None:
        self.bars = bars
        self._home = home

    def rows(self) -> list[Row]:
        """The paper's grid: one row per experiment, one panel per model."""
        return [
            Row(title, tuple(self.panel(group, model) for model in self.models(group)))
            for group, title in GROUPS.items()
        ]

    def models(self, group: str) -> list[str]:
        """The models of an experiment, in the paper's order."""
        return list(dict.fromkeys(self.bars.loc[self.bars["panel"] == group, "model"]))

    def panel(self, group: str, model: str) -> Panel:
        """One panel of the grid, in the paper's lane; what it calls unsupported has its cross."""
        bars = self.bars[(self.bars["panel"] == group) & (self.bars["model"] == model)]
        full = bars.loc[bars["system"] == FULL, "value"]
        drawn = bars[bars["system"] != FULL]
        status = drawn["supported"].map({True: "ok", False: "unsupported"})
        drawn = drawn.assign(low=float("nan"), high=float("nan"), status=status, note="")
        return Panel(
            title=model,
            note=str(bars.iloc[0]["hardware"]),
            lane="paper",
            axis=str(bars.iloc[0]["axis"]),
            unit="TTFT (s)" if group == "ttft" else "Decode (tok/s)",
            bars=drawn[list(COLUMNS)].reset_index(drop=True),
            full=float(full.iloc[0]) if len(full) else None,
            logarithmic=group == "ttft",
        )

    def shares(self, group: str, hardware: str) -> tuple[str, dict[tuple[str, float], float]]:
        """The model that a hardware profile stands for, and its printed shares (%) by system and residency."""
        profile = self.profile(hardware)
        if profile is None or not profile.emulates:
            return "", {}
        title = load_model(self._home, profile.emulates).title
        shares = shares_of_full_load(self.bars)
        rows = shares[(shares["panel"] == group) & (shares["model"] == title) & shares["value"].notna()]
        return title, {(str(r["system"]), float(r["x"])): 100.0 * r["value"] for _, r in rows.iterrows()}

    def profile(self, name: str) -> HardwareProfile | None:
        """A hardware profile; None for one that is no longer declared: its old records are still worth a panel."""
        try:
            return load_hardware(self._home, name)
        except InputError:
            return None

    def short(self, profile: HardwareProfile) -> str:
        """The name of a GPU as the paper's figure has it."""
        name = profile.title.removeprefix("NVIDIA ").split(",")[0]
        return next((known for known in self.bars["hardware"].unique() if name.startswith(known)), name)

    def table(self) -> pd.DataFrame:
        """One row for every printed bar or cross, in the columns of a summary."""
        bars = self.bars
        return pd.DataFrame(
            {
                "panel": bars["panel"],
                "lane": "paper",
                "hardware": bars["hardware"],
                "model": bars["model"],
                "system": bars["system"],
                "residency": bars["x"].where(bars["axis"] == "residency"),
                "batch": bars["x"].where(bars["axis"] == "batch_size"),
                "tok_s": bars["value"].where(bars["metric"] == "decode_tok_s"),
                "ttft_s": bars["value"].where(bars["metric"] == "ttft_s"),
                "status": bars["supported"].map({True: "ok", False: "unsupported"}),
            }
        )

    def figure(self) -> Figure:
        """The grid on one sheet. Call it inside `seqmoe.report.style.theme`."""
        return grid_sheet([(row.title, row.panels) for row in self.rows()])
