"""Where SeqMoE is not ahead of an LRU cache, and what its time and bytes went to instead."""

from __future__ import annotations

import pandas as pd

from seqmoe.report.frame import WORKLOAD

_OURS, _RIVAL = "seqmoe", "lru"


def behind(summary: pd.DataFrame) -> list[str]:
    """One sentence for each emulated cell of a `seqmoe.report.summary.summarise` in which LRU is at least as fast."""
    emulated = summary[(summary["lane"] == "emulated") & summary["share"].notna()]
    found = []
    for _, cells in emulated.groupby([*WORKLOAD, "residency"], sort=False):
        rivals = cells[cells["system"] == _RIVAL]
        for _, ours in cells[cells["system"] == _OURS].iterrows():
            for _, rival in rivals.iterrows():
                if ours["share"] <= rival["share"]:
                    found.append(_sentence(ours, rival))
    return found


def _sentence(ours: pd.Series, rival: pd.Series) -> str:
    where = f"{ours['model_title']}, {ours['residency']:.0%}"
    where += f", batch {ours['batch']}" if ours["batch"] > 1 else ""
    text = (
        f"{ours['system_title']} is not ahead of LRU ({where}): {ours['share']:.1%} of full load against "
        f"{rival['share']:.1%}, hit rate {ours['hit_rate']:.1%} against {rival['hit_rate']:.1%}, waiting "
        f"{ours['stall_share']:.0%} of the time against {rival['stall_share']:.0%}"
    )
    sent = ours["bytes_prefetched"]
    if not sent > 0:
        return f"{text}; it prefetched nothing"
    parts = f"{ours['bytes_wasted'] / sent:.0%} of them in vain, {ours['bytes_late'] / sent:.0%} late"
    return f"{text}; {sent / 1e6:.0f} MB prefetched per token, {parts}"
