"""Repeats summed up: one row per cell, each metric as a median with its 95 % interval."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from seqmoe.harness.statistics import summarize
from seqmoe.report import style
from seqmoe.report.frame import CIRCUMSTANCES, DIFFERS, METRICS, SAME, UNKNOWN

_KEPT = [
    "suite", "panel", "lane", "hardware", "model", "model_title", "host", "device", "system",
    "system_title", "residency",
    "batch", "dataset", "prompts", "decode_tokens", "seed", "routing", "predictor", "weights", "layers",
    "cell_key",
]  # fmt: skip
COLUMNS = [
    *_KEPT, "status", "reason", "hint", "repeats", "answer", "matched", "tokens_sha256", "hit_note", *CIRCUMSTANCES,
    *(f"{metric}{part}" for metric in METRICS for part in ("", "_low", "_high")),
]  # fmt: skip


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per cell and host of a `seqmoe.report.frame.records_frame`, with the columns `COLUMNS`.

    Rows stand host by host; within one, the lane with most results comes first, and within a lane the order is that of
    writing. A metric ``m`` is the median ``m`` with ``m_low`` and ``m_high``; what is not compared is a median alone.
    Repeats that failed give no value; a cell is `ok` if any repeat was, and ``reason`` then says how many were not.
    """
    groups = frame.groupby(["host", "cell_key"], sort=False)
    cells = pd.DataFrame([_cell(rows) for _, rows in groups], columns=COLUMNS)
    lanes = list(style.LANES)
    ran = (cells["status"] == "ok").groupby([cells["host"], cells["lane"]]).transform("sum")
    place = {host: index for index, host in enumerate(dict.fromkeys(cells["host"]))}
    order = cells.assign(host=cells["host"].map(place), ran=-ran, lane=cells["lane"].map(lanes.index))
    return cells.loc[order.sort_values(["host", "ran", "lane"], kind="stable").index].reset_index(drop=True)


def _cell(rows: pd.DataFrame) -> dict[str, object]:
    good = rows[rows["status"] == "ok"]
    last = rows.iloc[-1]
    cell: dict[str, object] = {key: last[key] for key in _KEPT}
    if len(good):
        cell |= {"status": "ok", "reason": _failures(rows), "hint": ""}
    else:
        cell |= {"status": last["status"], "reason": last["reason"], "hint": last["hint"]}
    cell |= {
        "repeats": len(good),
        "answer": _answer(rows["answer"]),
        "matched": rows["matched"].min(),
        "tokens_sha256": _only(good["tokens_sha256"]),
        "hit_note": good.iloc[-1]["hit_note"] if len(good) else "",
        **{name: good[name].median() for name in CIRCUMSTANCES},
    }
    for metric in METRICS:
        values = good[metric].dropna()
        if len(values):
            found = summarize(list(values))
            # One value has no interval; drawing it as a point would claim a precision that nobody measured.
            low, high = (found.low, found.high) if found.count > 1 else (float("nan"), float("nan"))
            cell |= {metric: found.median, f"{metric}_low": low, f"{metric}_high": high}
        else:
            cell |= dict.fromkeys((metric, f"{metric}_low", f"{metric}_high"), float("nan"))
    return cell


def _failures(rows: pd.DataFrame) -> str:
    failed = rows[rows["status"] != "ok"]
    if failed.empty:
        return ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(failed["status"]).items())
    return f"{len(failed)} of {len(rows)} repeats gave no result ({kinds}): {failed.iloc[-1]['reason']}"


def _only(values: pd.Series) -> str:
    """The one value that all repeats have, empty where they differ or there is none."""
    found = set(values)
    return str(found.pop()) if len(found) == 1 else ""


def _answer(answers: pd.Series) -> str:
    """The worst answer of the repeats counts."""
    found = set(answers)
    if DIFFERS in found:
        return DIFFERS
    known = found - {UNKNOWN}
    return known.pop() if len(known) == 1 else (SAME if known else UNKNOWN)
