"""Replay studies in words: how far a cell is, and what came out."""

from __future__ import annotations

from typing import Any

from seqmoe.harness.studies import prediction


def progress(event: dict[str, Any]) -> str:
    """How far a cell is: its predictor's training, or the sequences replayed."""
    if event.get("stage") == "training":
        return f"training the predictor, {prediction.progress(event)}"
    return str(event.get("stage", ""))


def describe(observations: dict[str, Any]) -> str:
    """What came out where the pool is smallest: the best policy that is no oracle, at its best link, beside LRU."""
    rows = observations["rows"]
    least = min(row["residency"] for row in rows)
    rates: dict[str, float] = {}
    for row in rows:
        if row["residency"] == least:
            rates[row["policy"]] = max(row["hit_rate"], rates.get(row["policy"], 0.0))
    real = {name: rate for name, rate in rates.items() if name not in ("belady", "belady_8")} or rates
    best = max(real, key=lambda name: real[name])
    parts = [f"{name} {real[name]:.3f}" for name in dict.fromkeys((best, "lru")) if name in real]
    return f"at {least:.0%}: " + ", ".join(parts)
