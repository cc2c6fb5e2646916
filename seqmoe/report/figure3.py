"""Figure 3: what eviction that knows the future is worth: Belady, its limited forms, and the same on forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from seqmoe.report.plot import Plot
from seqmoe.report.replay_plots import NO_LINK, by_place, by_residency, hit_rates, recovered
from seqmoe.report.replay_tables import rows_frame
from seqmoe.report.replays import ReplayGroup

POLICIES = ("belady", "belady_8", "belady_f8", "lru", "lfu")
OURS = "belady_f8"
PLACE_RESIDENCY = 0.25


@dataclass(frozen=True, slots=True)
class Figure3:
    """Panels over groups of records (`seqmoe.report.replays.groups_of`) and the paper's claims."""

    groups: Sequence[ReplayGroup]
    claims: pd.DataFrame

    def panels(self, group: ReplayGroup) -> list[Plot]:
        """Hit rates, the share of the gap that each recovers, and hit rates over the decoding."""
        chosen = [(policy, NO_LINK) for policy in POLICIES]
        without = [(policy, NO_LINK) for policy in POLICIES if policy not in ("belady", "lru")]
        place = min(group.residencies, key=lambda r: abs(r - PLACE_RESIDENCY), default=PLACE_RESIDENCY)
        return [
            hit_rates(group, "Eviction that knows the future", "No prefetching", chosen, OURS),
            by_residency(group, "How far from LRU to Belady", "0% is LRU, 100% is Belady", "Of the gap", without,
                         recovered, OURS),
            by_place(group, place, POLICIES, OURS),
        ]  # fmt: skip

    def printed(self) -> str:
        """The order of policies that the paper's figure shows, for its own models; empty if it is not transcribed."""
        rows = self.claims.loc[self.claims["id"] == "policy-order", "statement"]
        text = str(rows.iloc[0]).removeprefix("order of policies: ") if len(rows) else ""
        # The transcription is ASCII.
        for plain, proper in ((">=", "≥"), ("~", "≈"), ("..", "–")):
            text = text.replace(plain, proper)
        return text

    def table(self) -> pd.DataFrame:
        """Everything that is drawn, and more: one row for each policy and residency."""
        return rows_frame(self.groups)
