"""Metrics of claims by the names that suites/claims.toml uses. Each is a pure function of records and declarations."""

from __future__ import annotations

from seqmoe.harness.claims.metrics import arithmetic, hits, orders, recalls, speed, steps
from seqmoe.harness.claims.metrics.base import Metric

METRICS: dict[str, Metric] = {
    "decode_tok_s": speed.TOK_S,
    "share_of_full_load": speed.SHARE,
    "best_remaining_share": speed.BEST_REMAINING,
    "matches_freetoken": speed.MATCHES,
    "hit_rate": hits.HIT_RATE,
    "miss_rate": hits.MISS_RATE,
    "recall": recalls.RECALL,
    "recall_drop": recalls.RECALL_DROP,
    "long_recall": recalls.LONG_RECALL,
    "predictor_size": recalls.PREDICTOR_SIZE,
    "step_share": steps.STEP_SHARE,
    "size": arithmetic.SIZE,
    "overlap": arithmetic.OVERLAP,
    "table2": arithmetic.TABLE2,
    "ahead": orders.AHEAD,
}
