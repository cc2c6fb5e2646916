"""What a replay found: one row for each policy and residency, and the figures that are functions of its counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.loop import PLACED
from seqmoe.simulate.counting import BANDS, COUNTS, Tally

# Of fewer sequences no interval is told: resampling them says next to nothing about others.
LEAST_BATCHES = 5
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Bytes:
    """Expert bytes over the link per output token. ``wasted`` and ``late`` are parts of ``prefetched``."""

    on_demand: float
    prefetched: float
    wasted: float
    late: float


@dataclass(frozen=True, slots=True)
class Moved:
    """Experts that moved, one number for each layer or each band: of those needed, ``late`` and ``loads`` on demand.

    ``sent`` and ``wasted`` prefetches are told by the expert's layer, and by the step in which they were sent.
    ``tokens`` are the output tokens: those of the band, or for a layer all of them.
    """

    late: tuple[int, ...]
    loads: tuple[int, ...]
    sent: tuple[int, ...]
    wasted: tuple[int, ...]
    tokens: tuple[int, ...]

    def bytes(self, expert_bytes: int) -> tuple[Bytes, ...]:
        """The same in bytes per output token."""
        columns = zip(self.loads, self.sent, self.wasted, self.late, self.tokens, strict=True)
        return tuple(Bytes(*(count * expert_bytes / max(tokens, 1) for count in row)) for *row, tokens in columns)

    @staticmethod
    def of(counts: NDArray[np.integer], tokens: Iterable[int]) -> Moved:
        """From `PLACED` [places, 7]."""
        columns = {name: tuple(counts[:, PLACED.index(name)].tolist()) for name in ("late", "loads", "sent", "wasted")}
        return Moved(**columns, tokens=tuple(int(count) for count in tokens))


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One policy at one residency, over the decode steps of all requests that are not warm-up.

    ``accesses`` counts distinct experts per event under the event contract, single accesses under the sequential one.
    ``late`` are prefetches that were under way when they were needed, misses for the rate; ``loads`` experts brought in
    on demand, ``sent`` prefetches. ``interval`` is a 95 % bootstrap over batches (a request each, if they run alone),
    None for fewer than `LEAST_BATCHES`.
    ``gap_recovered`` is the share of the way from LRU to Belady, both without prefetching, None where they are equal.
    The byte figures are None where the trace does not tell an expert's size. ``link`` is in experts per layer, None for
    any number; 0 for a policy that does not prefetch. ``used_share`` is the share of the prefetches that were needed
    after they landed, None without any. ``distinct`` is the mean number of experts an event needs. ``layers`` are hit
    rates by layer, ``bands`` those by place in the decoding ([first step, rate]). ``batches`` [n][2] are hits and
    accesses of each batch. ``assignment_rate`` is the hit rate where an expert counts once for every request of the
    batch that needs it. ``by_layer`` and ``by_band`` tell what moved, the latter for the places of ``bands``. Records
    of earlier versions have None for these three, and 0 for ``expert_bytes``.
    """

    policy: str
    residency: float
    slots: int
    contract: str
    hit_rate: float
    interval: tuple[float, float] | None
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
    assignment_rate: float | None = None
    expert_bytes: int = 0
    by_layer: Moved | None = None
    by_band: Moved | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def detail(self) -> dict[str, Any]:
        """The same, and what moved in bytes per token: ``bytes_by_layer`` and ``bytes_by_band`` (None as ``bytes``)."""
        found = self.as_dict()
        for name, moved in (("bytes_by_layer", self.by_layer), ("bytes_by_band", self.by_band)):
            known = moved is not None and self.expert_bytes
            found[name] = [asdict(place) for place in moved.bytes(self.expert_bytes)] if moved and known else None
        return found

    @staticmethod
    def from_dict(values: dict[str, Any]) -> ReplayRow:
        """What `as_dict` gave; ``KeyError`` or ``TypeError`` for anything else."""
        plain = {
            one.name: values[one.name] for one in fields(ReplayRow) if one.default is MISSING or one.name in values
        }
        plain["bytes"] = None if plain["bytes"] is None else Bytes(**plain["bytes"])
        plain["layers"] = tuple(plain["layers"])
        for name in ("bands", "batches"):
            plain[name] = tuple(tuple(pair) for pair in plain[name])
        # Earlier versions gave an interval however few there were.
        known = plain["interval"] is not None and len(plain["batches"]) >= LEAST_BATCHES
        plain["interval"] = tuple(plain["interval"]) if known else None
        for name in ("by_layer", "by_band"):
            if plain.get(name) is not None:
                plain[name] = Moved(**{column: tuple(counts) for column, counts in plain[name].items()})
        return ReplayRow(**plain)


def row_of(tally: Tally, expert_bytes: int, lru: float, belady: float, shared: dict[str, Any]) -> ReplayRow:
    """The row of a tally; ``lru`` and ``belady`` are the two bounds' hit rates, ``shared`` what was asked for."""
    counts = {name: tally.total(name) for name in COUNTS}
    tokens, pairs, layers, bands = counts["tokens"], tally.pairs(), tally.layers(), tally.bands()
    reached = bands[:, PLACED.index("needed")] > 0
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
        layers=tuple(float(hits / needed) if needed else None for hits, needed in layers[:, :2]),
        bands=tuple(
            (first, float(hits / needed)) for first, (hits, needed) in zip(BANDS, bands[:, :2], strict=True) if needed
        ),
        batches=tuple((int(hits), int(needed)) for hits, needed in pairs),
        assignment_rate=counts["assigned_hits"] / counts["assigned"],
        expert_bytes=expert_bytes,
        by_layer=Moved.of(layers, [tokens] * len(layers)),
        by_band=Moved.of(bands[reached], tally.band_tokens()[reached]),
    )


def bootstrap(pairs: NDArray[np.integer], seed: int = 0) -> tuple[float, float] | None:
    """95 % percentile interval of sum(pairs[:, 0]) / sum(pairs[:, 1]) over its rows; None if they are too few."""
    if len(pairs) < LEAST_BATCHES:
        return None
    picks = np.random.default_rng(seed).multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), _RESAMPLES)
    sums = picks @ pairs
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return float(low), float(high)


def ahead(mine: ReplayRow, other: ReplayRow, seed: int = 0) -> tuple[float, float] | None:
    """95 % interval of the difference of two hit rates, in points, over the same batches: paired bootstrap.

    None where the batches are too few for one (`LEAST_BATCHES`).
    """
    count = len(mine.batches)
    if count < LEAST_BATCHES:
        return None
    picks = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    sums = [picks @ np.array(row.batches) for row in (mine, other)]
    rates = [pairs[:, 0] / pairs[:, 1] for pairs in sums]
    low, high = np.percentile(100 * (rates[0] - rates[1]), [2.5, 97.5])
    return float(low), float(high)


def recovered(rate: float, lru: float, belady: float) -> float | None:
    """Share of the way from LRU to Belady; negative below LRU, None where the two are equal."""
    return (rate - lru) / (belady - lru) if belady > lru else None
