"""One run of the event loop over a batch, and the sums over the batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.loop import PLACED
from seqmoe.core.simulate import EventLoop, PrefetchRules
from seqmoe.simulate.batch import Batch
from seqmoe.simulate.blocks import Block
from seqmoe.simulate.foresight import Tasks
from seqmoe.simulate.policies.base import Floats, Foresight, Scores

# Hit rates are told by place in the decoding as well: steps from each of these to the next.
BANDS = (0, 64, 256, 1024, 4096)
# What is counted, all in experts but ``tokens`` and ``events``; ``assigned`` once for each request that needs one.
COUNTS = (*PLACED, "assigned_hits", "assigned", "tokens", "events")


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """What one batch gave: `COUNTS`, and `PLACED` by layer [layers, 7] and by band [bands, 7].

    ``band_tokens`` [bands] are the output tokens of each band.
    """

    totals: tuple[int, ...]
    layers: NDArray[np.int64]
    bands: NDArray[np.int64]
    band_tokens: NDArray[np.int64]


class Run:
    """One pool, cold at first, and one policy in it, through the blocks of a batch.

    ``shape`` is layers, experts and slots; ``tasks`` are given if ``rules`` are.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        rules: PrefetchRules | None,
        sequential: bool,
        batch: Batch,
        foresight: Foresight | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        self._batch, self._foresight, self._tasks = batch, foresight, tasks
        self._shape = shape
        decoding = -int(batch.decoded[0])
        self._loop = EventLoop(*shape, rules, sequential, [decoding + first for first in BANDS])
        self._events = 0

    def feed(self, block: Block, scores: Scores) -> None:
        """Run the next block with the scores of a whole batch."""
        steps, tasks, foresight = block.steps, self._tasks, self._foresight
        told = foresight is not None and (scores.forecast is not None or tasks is not None)
        self._feed(
            block,
            used=None if scores.used is None else scores.used[steps],
            forecast=None if scores.forecast is None else scores.forecast[steps],
            ranges=foresight.ranges if foresight is not None and told else (),
            task_expert=None if tasks is None else tasks[0][steps],
            task_confidence=None if tasks is None else tasks[1][steps],
        )

    def feed_accessed(self, block: Block, before: Floats, accessed: Floats) -> None:
        """Run the next block with scores by access (see `seqmoe.simulate.policies.by_access`)."""
        self._loop.set_scores(before.reshape(self._shape[:2]))
        self._feed(block, accessed=accessed)

    def counts(self) -> Counts:
        """What was counted."""
        found, batch = self._loop.counts(), self._batch
        totals = [int(getattr(found, name)) for name in COUNTS[:-2]]
        band = np.searchsorted(BANDS, batch.decoded, side="right") - 1
        tokens = np.array([batch.outputs[band == place].sum() for place in range(len(BANDS))], dtype=np.int64)
        return Counts((*totals, batch.tokens, self._events), found.layers, found.bands, tokens)

    def _feed(self, block: Block, **scores: object) -> None:
        events = block.events
        self._events += block.counted * len(events.step)
        self._loop.feed(
            events.step,
            events.layer,
            events.start,
            events.expert,
            count=block.counted,
            demand=events.demand,
            **scores,  # type: ignore[arg-type]
        )


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
        """`PLACED` by layer, int64 [layers, 7]."""
        found: NDArray[np.int64] = np.sum([counts.layers for counts in self.batches], axis=0)
        return found

    def bands(self) -> NDArray[np.int64]:
        """`PLACED` by place in the decoding, int64 [bands, 7]."""
        found: NDArray[np.int64] = np.sum([counts.bands for counts in self.batches], axis=0)
        return found

    def band_tokens(self) -> NDArray[np.int64]:
        """Output tokens by place in the decoding, int64 [bands]."""
        found: NDArray[np.int64] = np.sum([counts.band_tokens for counts in self.batches], axis=0)
        return found
