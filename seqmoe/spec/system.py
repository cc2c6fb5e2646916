"""Systems as values: each is one row of a table, not a code path."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seqmoe.spec.errors import InputError, nearest

_BY_FORECAST = ("cache_score", "cache_score_next", "forecast_tail", "learned")
RETENTION = ("all", "none", "lru", "lfu", "lfu_decay", "prefill_hot", "popularity", *_BY_FORECAST)
# The orders of `seqmoe.core.schedule`.
PREFETCH = ("none", "matroid", "infinity", "promoe", "confidence", "edf")
RESERVE = ("selection", "creation")
PREDICTOR = ("none", "any")
PREFILL = ("on_demand", "popularity", "ping_pong")
MISS = ("load", "cpu")
EXECUTION = ("eager", "sync", "graph")


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """Cache policy x prefetch policy x predictor x miss handling x execution.

    ``retention`` "all" keeps every expert on the device (full load), "none" keeps none beyond its layer; the others are
    scores of `seqmoe.runtime.retention`. ``prefetch`` is the order in which tasks are sent while decoding, ``reserve``
    when a task gets its slot, ``prefill`` how a prompt's experts are fetched ahead. ``execution`` "eager" computes one
    expert after another, "sync" all of a layer in one kernel that the host starts once it knows the slots, "graph" the
    whole step at once. ``miss`` "cpu" lets the host's CPU compute, where they lie, as many of a layer's missing experts
    as is quickest (`seqmoe.spec.pace.MissPrices`) while the others are loaded; those whose score deserves a slot are
    fetched in the background. It has the host between routing and experts, so it is not for graphs. ``lookahead`` is
    the number of steps the forecast is rolled out beyond the next one (c in the paper), ``extra`` the prefetch tasks
    per layer beyond top_k (k' - k).
    """

    name: str
    title: str
    retention: str
    prefetch: str = "none"
    reserve: str = "selection"
    predictor: str = "none"
    prefill: str = "on_demand"
    miss: str = "load"
    execution: str = "sync"
    lookahead: int = 8
    extra: int = 3

    def __post_init__(self) -> None:
        for field, valid in (
            ("retention", RETENTION),
            ("prefetch", PREFETCH),
            ("reserve", RESERVE),
            ("predictor", PREDICTOR),
            ("prefill", PREFILL),
            ("miss", MISS),
            ("execution", EXECUTION),
        ):
            value = getattr(self, field)
            if value not in valid:
                raise ValueError(f"{field} = {value!r}; {nearest(value, valid)}")
        if self.predictor == "none" and (self.retention in _BY_FORECAST or self.prefetch != "none"):
            raise ValueError(f"system {self.name!r} needs a predictor")
        if self.miss == "cpu" and self.execution == "graph":
            raise ValueError(
                f"execution = 'graph': system {self.name!r} computes misses on the host's CPU, which cannot be asked "
                "in the middle of a graph; use 'sync' or 'eager'"
            )

    @property
    def needs_popularity(self) -> bool:
        """Whether it reads how often other traces of the model used each expert."""
        return self.retention == "popularity" or self.prefill == "popularity"

    @property
    def needs_weights(self) -> bool:
        """Whether it reads weights that were fitted to other traces of the model."""
        return self.retention == "learned"


def _seqmoe(name: str, title: str, retention: str = "cache_score", prefetch: str = "matroid") -> SystemSpec:
    return SystemSpec(name, title, retention, prefetch, predictor="any", prefill="popularity")


SYSTEMS = {
    spec.name: spec
    for spec in (
        SystemSpec("full", "FullLoad", retention="all"),
        SystemSpec("naive", "Eager (naive)", retention="none"),
        SystemSpec("lru", "LRU (FreeToken's policy)", retention="lru", prefill="ping_pong"),
        SystemSpec("lfu", "LFU (MoE-APEX's policy)", retention="lfu"),
        SystemSpec("lfu_decay", "LFU with decay", retention="lfu_decay"),
        SystemSpec("prefill_hot", "PrefillHot (KTransformers's policy)", retention="prefill_hot"),
        SystemSpec("popularity", "Popularity", retention="popularity", prefill="popularity"),
        _seqmoe("seqmoe_cache_only", "SeqMoE (CacheOnly)", prefetch="none"),
        _seqmoe("seqmoe_infinity", "SeqMoE (Infinity)", prefetch="infinity"),
        _seqmoe("seqmoe", "SeqMoE"),
        replace(_seqmoe("seqmoe_cpu", "SeqMoE, misses on the CPU"), miss="cpu"),
        _seqmoe("seqmoe_next", "SeqMoE, score with the next step", "cache_score_next"),
        _seqmoe("seqmoe_tail", "SeqMoE, forecast then frequency", "forecast_tail"),
        _seqmoe("seqmoe_learned", "SeqMoE, learned score", "learned"),
    )
}


def system(name: str) -> SystemSpec:
    """The system of that name; an unknown one is an `InputError` with the nearest."""
    if name not in SYSTEMS:
        raise InputError(f"system {name!r} is unknown; {nearest(name, SYSTEMS)}")
    return SYSTEMS[name]
