"""The retention policies that the runtime has, by the names of `seqmoe.spec.system`."""

from __future__ import annotations

from seqmoe.runtime import cache_score, expected_use, retention
from seqmoe.runtime.retention import Offline, Retention
from seqmoe.simulate.policies.base import Floats

KINDS: dict[str, type[Retention]] = {
    "none": Retention,
    "lru": retention.LeastRecent,
    "lfu": retention.LeastFrequent,
    "lfu_decay": retention.LeastFrequentWithDecay,
    "prefill_hot": retention.PrefillHot,
    "popularity": retention.Popular,
    "cache_score": cache_score.CacheScore,
    "cache_score_next": cache_score.CacheScoreNext,
    "forecast_tail": expected_use.ForecastTail,
    "learned": expected_use.Learned,
}


def retention_of(name: str, score: Floats, offline: Offline) -> Retention:
    """The policy of that name over a slot table's ``score``; ``ValueError`` where it lacks what it needs."""
    return KINDS[name](score, offline)
