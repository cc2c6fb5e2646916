"""Where SeqMoE may be called faster than another system: only by the rule of the measurement contract."""

from __future__ import annotations

import pandas as pd

from seqmoe.harness.statistics import Comparison, compare
from seqmoe.report import style
from seqmoe.report.frame import WORKLOAD

_OURS, _FULL = "seqmoe", "full"
_SHOWN_REASONS = 2


def pace(frame: pd.DataFrame) -> list[str]:
    """One sentence for each rival and lane of a `seqmoe.report.frame.records_frame`, in how many cells it is beaten.

    Two cells are compared if they differ in the system alone; full load is no rival. Simulated cells are computed: they
    have no repeats to be tested, and what is faster there is no finding.
    """
    found: dict[tuple[str, str, str], list[Comparison]] = {}
    ran = frame[(frame["status"] == "ok") & frame["tok_s"].notna() & (frame["system"] != _FULL)]
    ran = ran[ran["lane"] != "simulated"]
    for _, cells in ran.groupby([*WORKLOAD, "residency"], sort=False):
        for name, ours in cells[cells["system"] == _OURS].groupby("system_title", sort=False):
            for title, theirs in cells[cells["system"] != _OURS].groupby("system_title", sort=False):
                result = compare(list(ours["tok_s"]), list(theirs["tok_s"]))
                found.setdefault((str(name), str(title), _lane(theirs.iloc[0])), []).append(result)
    return [_sentence(*names, results) for names, results in found.items()]


def _sentence(ours: str, rival: str, lane: str, results: list[Comparison]) -> str:
    count = sum(result.faster for result in results)
    reasons = list(dict.fromkeys(result.reason for result in results if not result.faster))
    more = f"; {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
    why = "; ".join(reasons[:_SHOWN_REASONS]) + more
    if count == 0:
        return f"{ours} is not to be called faster than {rival} in any of {_cells(results)} ({lane}): {why}"
    text = f"{ours} is faster than {rival} in {count} of {_cells(results)} ({lane})"
    return f"{text}; not in the others: {why}" if reasons else text


def _cells(results: list[Comparison]) -> str:
    return f"{len(results)} cell{'' if len(results) == 1 else 's'}"


def _lane(row: pd.Series) -> str:
    if row["hardware"] == "host":
        return style.lane_text(str(row["lane"]), str(row["device"]))
    return f"{row['lane']}, {row['hardware']}"
