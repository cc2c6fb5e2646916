"""What a replay found: one row for each policy and residency, and the figures that are functions of its counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.counting import BANDS, COUNTS, Tally

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Bytes:
    """Expert bytes over the link per output token. ``wasted`` and ``late`` are parts of ``prefetched``."""

    on_demand: float
    prefetched: float
    wasted: float
    late: float


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One policy at one residency, over the decode steps of all requests that are not warm-up.

    ``accesses`` counts distinct experts per event under the event contract, single accesses under the sequential one.
    ``late`` are prefetches that were under way when they were needed, misses for the rate; ``loads`` experts brought in
    on demand, ``sent`` prefetches. ``interval`` is a 95 % bootstrap over batches (a request each, if they run alone).
    ``gap_recovered`` is the share of the way from LRU to Belady, both without prefetching, None where they are equal.
    The byte figures are None where the trace does not tell an expert's size. ``link`` is in experts per layer, None for
    any number; 0 for a policy that does not prefetch. ``used_share`` is the share of the prefetches that were needed
    after they landed, None without any. ``distinct`` is the mean number of experts an event needs. ``layers`` are hit
    rates by layer, ``bands`` those by place in the decoding ([first step, rate]). ``batches`` [n][2] are hits and
    accesses of each batch.
    """

    policy: str
    residency: float
    slots: int
    contract: str
    hit_rate: float
    interval: tuple[float, float]
    hits: int
    accesses: int
    distinct: float
    loads: int
    loads_per_token: float
    link: float | None
    late: int
    sent: int
    sent_per_token: float
    used_share: float | None
    bytes_per_token: float | None
    bytes: Bytes | None
    gap_recovered: float | None
    tokens: int
    layers: tuple[float | None, ...]
    bands: tuple[tuple[int, float], ...]
    batches: tuple[tuple[int, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> ReplayRow:
        """What `as_dict` gave; ``KeyError`` or ``TypeError`` for anything else."""
        plain = {one.name: values[one.name] for one in fields(ReplayRow)}
        plain["bytes"] = None if plain["bytes"] is None else Bytes(**plain["bytes"])
        for name in ("interval", "layers"):
            plain[name] = tuple(plain[name])
        for name in ("bands", "batches"):
            plain[name] = tuple(tuple(pair) for pair in plain[name])
        return ReplayRow(**plain)


def row_of(tally: Tally, expert_bytes: int, lru: float, belady: float, shared: dict[str, Any]) -> ReplayRow:
    """The row of a tally; ``lru`` and ``belady`` are the two bounds' hit rates, ``shared`` what was asked for."""
    counts = {name: tally.total(name) for name in COUNTS}
    tokens, pairs = counts["tokens"], tally.pairs()
    moved = [counts[name] * expert_bytes / tokens for name in ("loads", "sent", "wasted", "late")]
    return ReplayRow(
        **shared,
        hit_rate=tally.rate,
        interval=bootstrap(pairs),
        hits=counts["hits"],
        accesses=counts["needed"],
        distinct=counts["needed"] / counts["events"],
        loads=counts["loads"],
        loads_per_token=counts["loads"] / tokens,
        late=counts["late"],
        sent=counts["sent"],
        sent_per_token=counts["sent"] / tokens,
        used_share=counts["used"] / counts["sent"] if counts["sent"] else None,
        bytes_per_token=moved[0] + moved[1] if expert_bytes else None,
        bytes=Bytes(*moved) if expert_bytes else None,
        gap_recovered=recovered(tally.rate, lru, belady),
        tokens=tokens,
        layers=tuple(float(hits / needed) if needed else None for hits, needed in tally.layers()),
        bands=tuple(
            (first, float(hits / needed)) for first, (hits, needed) in zip(BANDS, tally.bands(), strict=True) if needed
        ),
        batches=tuple((int(hits), int(needed)) for hits, needed in pairs),
    )


def bootstrap(pairs: NDArray[np.integer], seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of sum(pairs[:, 0]) / sum(pairs[:, 1]) over its rows; one row has no spread."""
    picks = np.random.default_rng(seed).multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), _RESAMPLES)
    sums = picks @ pairs
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return float(low), float(high)


def recovered(rate: float, lru: float, belady: float) -> float | None:
    """Share of the way from LRU to Belady; negative below LRU, None where the two are equal."""
    return (rate - lru) / (belady - lru) if belady > lru else None
