"""One run of the event loop over a batch, and the sums over the batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.simulate import EventLoop, PrefetchRules
from seqmoe.simulate.batch import Batch, Events
from seqmoe.simulate.foresight import Tasks
from seqmoe.simulate.policies.base import Foresight, Scores

# Hit rates are told by place in the decoding as well: steps from each of these to the next.
BANDS = (0, 64, 256, 1024, 4096)
# What is counted, all in experts but ``tokens`` and ``events``.
COUNTS = ("hits", "needed", "late", "loads", "sent", "used", "wasted", "dropped", "tokens", "events")


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """What one batch gave: `COUNTS`, and hits and needed experts by layer [layers, 2] and by band [bands, 2]."""

    totals: tuple[int, ...]
    layers: NDArray[np.int64]
    bands: NDArray[np.int64]


def observe(
    shape: tuple[int, int, int],
    rules: PrefetchRules | None,
    sequential: bool,
    batch: Batch,
    events: Events,
    scores: Scores,
    foresight: Foresight | None = None,
    tasks: Tasks | None = None,
    accessed: NDArray[np.float32] | None = None,
) -> Counts:
    """Run a batch from a cold pool.

    ``shape`` is layers, experts and slots; ``tasks`` are given if ``rules`` are; ``accessed`` are scores by access (see
    `seqmoe.simulate.policies.by_access`), in the place of ``scores``.
    """
    decoding = -int(batch.decoded[0])
    loop = EventLoop(*shape, rules, sequential, [decoding + first for first in BANDS])
    ranges = foresight.ranges if foresight is not None and (scores.forecast is not None or tasks is not None) else ()
    counted_events = 0
    for first, last in _stretches(batch.counted):
        begin, end = np.searchsorted(events.step, (first, last)).tolist()
        if begin == end:
            continue
        part, counted = events.slice(begin, end), bool(batch.counted[first])
        counted_events += counted * (end - begin)
        # The loop's arrays have a row for each step from the block's first event to its last.
        steps = slice(int(part.step[0]), int(part.step[-1]) + 1)
        loop.feed(
            part.step,
            part.layer,
            part.start,
            part.expert,
            count=counted,
            accessed=None if accessed is None else accessed[events.start[begin] : events.start[end]],
            used=None if scores.used is None else scores.used[steps],
            forecast=None if scores.forecast is None else scores.forecast[steps],
            ranges=ranges,
            task_expert=None if tasks is None else tasks[0][steps],
            task_confidence=None if tasks is None else tasks[1][steps],
        )
    found = loop.counts()
    totals = [int(getattr(found, name)) for name in COUNTS[:-2]]
    layers = np.stack([found.layer_hits, found.layer_needed], axis=1)
    bands = np.stack([found.band_hits, found.band_needed], axis=1)
    return Counts((*totals, batch.tokens, counted_events), layers, bands)


@dataclass(slots=True, eq=False)
class Tally:
    """Counts of one policy at one residency, batch by batch."""

    batches: list[Counts] = field(default_factory=list)

    def add(self, counts: Counts) -> None:
        """Another batch."""
        self.batches.append(counts)

    def total(self, name: str) -> int:
        """Sum of one of `COUNTS` over the batches."""
        place = COUNTS.index(name)
        return sum(counts.totals[place] for counts in self.batches)

    @property
    def rate(self) -> float:
        """Hit rate over everything."""
        return self.total("hits") / self.total("needed")

    def pairs(self) -> NDArray[np.int64]:
        """Hits and needed experts of every batch that counts, int64 [batches, 2]."""
        found = [counts.totals[:2] for counts in self.batches if counts.totals[1]]
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    def layers(self) -> NDArray[np.int64]:
        """Hits and needed experts by layer, int64 [layers, 2]."""
        found: NDArray[np.int64] = np.sum([counts.layers for counts in self.batches], axis=0)
        return found

    def bands(self) -> NDArray[np.int64]:
        """Hits and needed experts by place in the decoding, int64 [bands, 2]."""
        found: NDArray[np.int64] = np.sum([counts.bands for counts in self.batches], axis=0)
        return found


def _stretches(counted: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Steps [first, last) that are all counted, or all not."""
    edges = [0, *(np.flatnonzero(np.diff(counted)) + 1).tolist(), len(counted)]
    return list(pairwise(edges)) if len(counted) else []
