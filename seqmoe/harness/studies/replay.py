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
    """What came out: the hit rates of the best policy that is no bound, beside LRU's, where there is one."""
    rows = observations["rows"]
    least = min(row["residency"] for row in rows)
    rates = {(row["policy"], row["link"]): row["hit_rate"] for row in rows if row["residency"] == least}
    real = {policy: rate for (policy, _), rate in rates.items() if not policy.startswith("belady")}
    real |= {policy: rate for (policy, link), rate in rates.items() if policy in real and link == 0}
    best = max(real or {policy: rate for (policy, _), rate in rates.items()}, key=lambda name: real.get(name, 0.0))
    parts = [f"{name} {real[name]:.3f}" for name in dict.fromkeys((best, "lru")) if name in real]
    return f"at {least:.0%}: " + ", ".join(parts)
