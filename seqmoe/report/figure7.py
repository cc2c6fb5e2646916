"""Figure 7: expert hit rates of SeqMoE, its ablations, the policies of others, and what goes beyond the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from seqmoe.report.plot import Plot, Tick, common_ends
from seqmoe.report.replay_moves import moved_panels
from seqmoe.report.replay_plots import NO_LINK, Chosen, by_residency, hit_rates, moved, recovered
from seqmoe.report.replay_tables import COST_RESIDENCY, rows_frame
from seqmoe.report.replays import ReplayGroup

OURS, CACHE_ONLY, INFINITY, LEARNED = "seqmoe", "seqmoe_cache_only", "seqmoe_infinity", "seqmoe_learned"
_ALONE = ("lru", "lfu", "prefill_hot", CACHE_ONLY, "belady")
_PREFETCHING = (INFINITY, OURS, LEARNED)
_EVICTION = ("lfu", "lfu_decay", CACHE_ONLY, "belady_f8", "seqmoe_next", "mix", "forecast_tail", "learned")
# The links that get a panel, the paper's hardware first.
_LINKS = ("rtx4090", "1.39", "unlimited")
_PRINTED = (15, 25, 35, 45)


@dataclass(frozen=True, slots=True)
class Figure7:
    """Panels over groups of records (`seqmoe.report.replays.groups_of`) and the paper's claims."""

    groups: Sequence[ReplayGroup]
    claims: pd.DataFrame

    def panels(self, group: ReplayGroup) -> list[Plot]:
        """Hit rates at three links beside the paper's averages; the gap, and what moves over the link and where."""
        links = [link for link in _LINKS if link in group.links]
        rates = [self._rates(group, link) for link in links]
        ends = common_ends([*rates, self.printed()])
        first = links[0] if links else NO_LINK
        alone: list[Chosen] = [(policy, NO_LINK) for policy in _EVICTION]
        residency = min(group.residencies, key=lambda r: abs(r - COST_RESIDENCY), default=COST_RESIDENCY)
        cost: list[Chosen] = [*((p, NO_LINK) for p in ("lru", "lfu", CACHE_ONLY)), *((p, first) for p in _PREFETCHING)]
        return [
            *(replace(plot, ends=ends) for plot in (*rates, self.printed())),
            by_residency(group, "Eviction alone", "No prefetching; 0% is LRU, 100% is Belady", "Of the LRU-Belady gap",
                         alone, recovered, "learned"),
            by_residency(group, "Over the link", f"On demand and prefetched; {group.link_text(first)}",
                         "Experts per token", cost, moved, OURS, percent=False),
            *moved_panels(group, OURS, residency, first),
        ]  # fmt: skip

    def printed(self) -> Plot:
        """The paper's averages of SeqMoE and LRU: its models, its traces."""
        ticks = []
        for residency in _PRINTED:
            for policy, name in (("lru", "LRU"), ("seqmoe", "SeqMoE")):
                if (value := self.claim(f"hit-{policy}-{residency}")) is not None:
                    ticks.append(Tick(f"{residency}%\n{name}", value, f"{100 * value:.0f}"))
        note = "Mean of its models; three of them at 45%"
        return Plot("Printed in the paper", note, "Expert hit rate", "", ticks=tuple(ticks))

    def claim(self, name: str) -> float | None:
        """A share that the paper prints, None if the transcription lacks it."""
        values = self.claims.loc[self.claims["id"] == name, "value"]
        return float(values.iloc[0]) / 100 if len(values) else None

    def table(self) -> pd.DataFrame:
        """One row for each policy, link and residency, and the paper's averages in rows of traces ``paper``."""
        rows = []
        for residency in (*_PRINTED[:3], 40, _PRINTED[3]):
            for policy in ("lru", "seqmoe"):
                if (value := self.claim(f"hit-{policy}-{residency}")) is not None:
                    rows.append({"traces": "paper", "policy": policy, "residency": residency / 100, "hit_rate": value})
        return pd.concat([rows_frame(self.groups), pd.DataFrame(rows)], ignore_index=True)

    def _rates(self, group: ReplayGroup, link: str) -> Plot:
        value = group.links[link]
        many = "Any number of prefetches" if value is None else f"{value:.2f} experts per layer"
        where = {"rtx4090": "An RTX 4090 at full-load speed", "1.39": "The ratio that the paper prints"}
        note = where.get(link, "No limit but the slots")
        chosen: list[Chosen] = [*((policy, NO_LINK) for policy in _ALONE), *((policy, link) for policy in _PREFETCHING)]
        return hit_rates(group, many, note, chosen, OURS)
