"""Retention policies by name, each a function from a batch's routing and forecasts to scores.

A policy is named as in `POLICIES`, or, with a prefetcher, as ``NAME+ORDER``: ``lru+matroid`` keeps what was used last
and prefetches by matroid greedy. A policy of one's own is a `Policy` around any function of a `Routing`.
"""

from __future__ import annotations

from dataclasses import replace

from seqmoe.core.schedule import ORDERS
from seqmoe.simulate.policies import forecast, history, mixed, oracle
from seqmoe.simulate.policies.base import Foresight, Policy, Routing, ScoreFunction, Scores
from seqmoe.simulate.policies.learned import learned
from seqmoe.spec.errors import InputError, nearest

__all__ = ["ORDERS", "POLICIES", "Foresight", "Policy", "Routing", "ScoreFunction", "Scores", "policy_of"]

_FORECAST, _LEARNED = ("forecast",), ("forecast", "weights")
_DECLARED = (
    Policy("lru", "LRU", history.lru, "the least recently used goes first"),
    Policy("lfu", "LFU", history.lfu, "the least often used of this batch goes first"),
    Policy("lfu_decay", "LFU with decay", history.lfu_decay, "a use weighs 0.95 for every step since"),
    Policy("prefill_hot", "PrefillHot", history.prefill_hot, "the prompt's most used experts, frozen", ("warm",)),
    Policy("popularity", "Popularity", history.popularity, "other traces' most used experts, fixed", ("popularity",)),
    Policy("belady", "Belady", oracle.belady, "the farthest next use goes first: the bound", oracle=True),
    Policy("belady_8", "Belady-8", oracle.belady_8, "Belady that sees eight steps", oracle=True),
    Policy("belady_f8", "Belady-F8", forecast.belady_f8, "Belady-8 on forecasts: the expected next use", _FORECAST),
    Policy("seqmoe_cache_only", "SeqMoE (CacheOnly)", forecast.cache_score, "CacheScore as printed", _FORECAST),
    Policy("seqmoe_infinity", "SeqMoE (Infinity)", forecast.cache_score,
           "CacheScore, and prefetches in MoE-Infinity's order", _FORECAST, "infinity", "selection"),
    Policy("seqmoe", "SeqMoE", forecast.cache_score,
           "CacheScore, and prefetches by matroid greedy; a slot is taken when its transfer is selected",
           _FORECAST, "matroid", "selection"),
    Policy("seqmoe_creation", "SeqMoE, slots reserved at creation", forecast.cache_score,
           "the same, but every task holds a slot from the start, as printed", _FORECAST, "matroid"),
    Policy("seqmoe_next", "CacheScore with next step", forecast.cache_score_next,
           "CacheScore that counts the next step until its layer has passed", _FORECAST),
    Policy("forecast_recency", "Forecast, then recency", forecast.forecast_recency,
           "CacheScore with the next step, LRU among equals", _FORECAST),
    Policy("use_head", "Direct use", forecast.use_head,
           "the predictor's direct forecast of future use", ("forecast", "use")),
    Policy("mix", "Mix", mixed.mix, "next-step forecast and running frequency in fixed shares", _FORECAST),
    Policy("forecast_tail", "Forecast, then frequency", forecast.forecast_tail,
           "expected discounted next use: forecasts, and frequency beyond their horizon", _FORECAST),
    Policy("learned", "Learned", learned, "forecasts and frequencies, weighted as fitted to other sequences", _LEARNED),
    Policy("seqmoe_learned", "SeqMoE, learned", learned,
           "the learned score, and prefetches by matroid greedy", _LEARNED, "matroid", "selection"),
    Policy("seqmoe_likely", "SeqMoE, learned, likely only", learned,
           "the same, but nothing is prefetched that is less than 0.3 likely: for links that outrun the pool",
           _LEARNED, "matroid", "selection", least_confidence=0.3),
)  # fmt: skip
POLICIES = {policy.name: policy for policy in _DECLARED}


def policy_of(name: str) -> Policy:
    """The policy of that name, or ``NAME+ORDER`` for one that prefetches; an unknown one is an `InputError`."""
    base, plus, order = name.partition("+")
    if base not in POLICIES:
        raise InputError(f"--policies: {base!r} is unknown; {nearest(base, POLICIES)}")
    policy = POLICIES[base]
    if not plus:
        return policy
    if order not in ORDERS:
        raise InputError(f"--policies: {name!r}: prefetching order {order!r} is unknown; {nearest(order, ORDERS)}")
    known = ORDERS[ORDERS.index(order)]
    return replace(policy, name=name, title=f"{policy.title} + {order}", prefetch=known, reserve="selection")
