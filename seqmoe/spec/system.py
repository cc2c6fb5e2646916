"""Systems as values: each is one row of a table, not a code path."""

from __future__ import annotations

from dataclasses import dataclass

from seqmoe.spec.errors import InputError, nearest

RETENTION = ("all", "none", "lru", "forecast")
PREFETCH = ("none", "matroid")
PREDICTOR = ("none", "first_order")
MISS = ("load",)
EXECUTION = ("eager",)


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """Cache policy x prefetch policy x predictor x miss handling x execution.

    ``retention`` "all" keeps every expert on the device (full load), "none" keeps none beyond its layer.
    ``lookahead`` is the number of steps the forecast is rolled out beyond the next one (c in the paper), ``decay``
    the weight lambda between them, ``extra`` the prefetch tasks per layer beyond top_k (k' - k).
    """

    name: str
    title: str
    retention: str
    prefetch: str = "none"
    predictor: str = "none"
    miss: str = "load"
    execution: str = "eager"
    lookahead: int = 8
    decay: float = 0.5
    extra: int = 3

    def __post_init__(self) -> None:
        for field, valid in (
            ("retention", RETENTION),
            ("prefetch", PREFETCH),
            ("predictor", PREDICTOR),
            ("miss", MISS),
            ("execution", EXECUTION),
        ):
            value = getattr(self, field)
            if value not in valid:
                raise ValueError(f"{field} = {value!r}; {nearest(value, valid)}")
        if self.predictor == "none" and (self.retention == "forecast" or self.prefetch != "none"):
            raise ValueError(f"system {self.name!r} needs a predictor")


SYSTEMS = {
    spec.name: spec
    for spec in (
        SystemSpec("full", "FullLoad", retention="all"),
        SystemSpec("naive", "Eager (naive)", retention="none"),
        SystemSpec("lru", "LRU (FreeToken's policy)", retention="lru"),
        SystemSpec("seqmoe", "SeqMoE", retention="forecast", prefetch="matroid", predictor="first_order"),
    )
}


def system(name: str) -> SystemSpec:
    """The system of that name; an unknown one is an `InputError` with the nearest."""
    if name not in SYSTEMS:
        raise InputError(f"system {name!r} is unknown; {nearest(name, SYSTEMS)}")
    return SYSTEMS[name]
