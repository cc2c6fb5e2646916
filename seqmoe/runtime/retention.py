"""Retention policies while they run: each keeps the slot table's scores, of which the lowest is evicted first.

Online twins of `seqmoe.simulate.policies`, where each policy is explained: after every event the scores of a layer are
those that the offline function gives it there, on the same routing and forecasts. A *step* is one token of each
request; a prompt of n tokens counts as n steps, the prompts of a batch end together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.policies.base import Floats
from seqmoe.simulate.policies.history import DECAY

# Positions up to here are whole numbers in float32.
_EXACT = 2**23


@dataclass(frozen=True, slots=True, eq=False)
class Offline:
    """What is known of a model from other traces: see `seqmoe.simulate.policies.base.Routing`. None where unknown."""

    popularity: Floats | None = None
    weights: Floats | None = None


class Retention:
    """Scores that never change: with all of them equal, the lowest expert key is evicted first.

    ``score`` float32 [layers, experts] is the slot table's own. The others derive from this class and override what
    they react to.
    """

    def __init__(self, score: Floats, offline: Offline) -> None:
        self.score = score
        self.layers, self.experts = score.shape
        self.offline = offline

    def begin_request(self, step: int) -> None:
        """A new batch begins with ``step``."""

    def resized(self, step: int) -> None:
        """From ``step`` on the running batch has more or fewer requests; nothing is forgotten."""

    def used(self, layer: int, step: int, experts: NDArray[np.int32]) -> None:
        """A decode step needs these experts of a layer, distinct; called before any of them is loaded."""

    def prompt(self, layer: int, step: int, active: NDArray[np.bool_]) -> None:
        """A prompt needs them: ``active`` bool [steps, experts], the last of which is ``step``."""

    def forecast(self, step: int, first: int, last: int, probability: Floats) -> None:
        """What is expected of layers ``first`` to ``last``, float32 [rows, layers, experts], row 0 for step + 1."""


class LeastRecent(Retention):
    """LRU: the score is the position of the last event that needed the expert."""

    def __init__(self, score: Floats, offline: Offline) -> None:
        super().__init__(score, offline)
        self._base = 0
        score[:] = -1

    def begin_request(self, step: int) -> None:
        """Positions start over while float32 still counts them exactly."""
        if (step - self._base) * self.layers > _EXACT:
            self.score -= (step - self._base) * self.layers
            self._base = step

    def resized(self, step: int) -> None:
        """A batch that never ends needs it as well."""
        self.begin_request(step)

    def used(self, layer: int, step: int, experts: NDArray[np.int32]) -> None:
        """The event's own position."""
        self.score[layer, experts] = (step - self._base) * self.layers + layer

    def prompt(self, layer: int, step: int, active: NDArray[np.bool_]) -> None:
        """The position of each expert's last token."""
        experts, last = _last_steps(active, step)
        self.score[layer, experts] = (last - self._base) * self.layers + layer


class LeastFrequent(Retention):
    """LFU of the running batch: the number of events that needed the expert, recency among equals.

    Count and recency are the upper and lower bits of a whole number, whose bits as float32 have the same order. Counts
    end at `_MOST`; when the positions have filled their bits, they are replaced by their order.
    """

    _RECENCY_BITS = 17
    _MOST = 0x7F7F_FFFF >> _RECENCY_BITS

    def __init__(self, score: Floats, offline: Offline) -> None:
        super().__init__(score, offline)
        self._bits = score.view(np.int32)
        self._count = np.zeros(score.shape, dtype=np.int64)
        self._recency = np.zeros(score.shape, dtype=np.int64)
        self._base = -1
        if score.size >> self._RECENCY_BITS:
            raise ValueError(f"LFU tells at most {1 << self._RECENCY_BITS} experts apart, not {score.size}")

    def begin_request(self, step: int) -> None:
        """Counts are of one batch."""
        self._count[:] = self._recency[:] = self._bits[:] = 0
        self._base = step * self.layers - 1

    def used(self, layer: int, step: int, experts: NDArray[np.int32]) -> None:
        """One more."""
        self._count[layer, experts] += 1
        self._rank(layer, experts, step * self.layers + layer - self._base)

    def prompt(self, layer: int, step: int, active: NDArray[np.bool_]) -> None:
        """One more for each token."""
        experts, last = _last_steps(active, step)
        self._count[layer] += active.sum(0)
        self._rank(layer, experts, last * self.layers + layer - self._base)

    def _rank(self, layer: int, experts: NDArray[np.integer], recency: int | NDArray[np.int64]) -> None:
        self._recency[layer, experts] = recency
        if int(np.max(recency)) >> self._RECENCY_BITS:
            return self._start_over(int(np.max(recency)))
        count = np.minimum(self._count[layer, experts], self._MOST)
        self._bits[layer, experts] = (count << self._RECENCY_BITS) | self._recency[layer, experts]

    def _start_over(self, newest: int) -> None:
        """Recencies become their own order; time goes on from there."""
        values, order = np.unique(self._recency, return_inverse=True)
        self._recency[:] = order.reshape(self._recency.shape)
        self._base += newest - (len(values) - 1)
        self._bits[:] = (np.minimum(self._count, self._MOST) << self._RECENCY_BITS) | self._recency


class LeastFrequentWithDecay(Retention):
    """LFU with decay: the logarithm of the sum of ``DECAY ** age``, as of the batch's first step."""

    def __init__(self, score: Floats, offline: Offline) -> None:
        super().__init__(score, offline)
        self._value = np.full(score.shape, -np.inf)
        self._base = 0
        score[:] = -np.inf

    def begin_request(self, step: int) -> None:
        """The past fades on; only the time that it is told from starts over."""
        self._value += (step - self._base) * np.log(DECAY)
        self._base = step
        self.score[:] = self._value

    def resized(self, step: int) -> None:
        """The same, lest values grow without end."""
        self.begin_request(step)

    def used(self, layer: int, step: int, experts: NDArray[np.int32]) -> None:
        """A use of weight 1 as of now."""
        value = np.logaddexp(self._value[layer, experts], self._now(layer, step))
        self._value[layer, experts] = value
        self.score[layer, experts] = value

    def prompt(self, layer: int, step: int, active: NDArray[np.bool_]) -> None:
        """Older tokens weigh less."""
        with np.errstate(divide="ignore"):
            uses = np.log(faded_uses(active, DECAY))
        self._value[layer] = np.logaddexp(self._value[layer], uses + self._now(layer, step))
        self.score[layer] = self._value[layer]

    def _now(self, layer: int, step: int) -> float:
        """The logarithm of a use of weight 1 as of now: later uses weigh more."""
        return -float(np.log(DECAY)) * (step - self._base + layer / self.layers)


class PrefillHot(Retention):
    """The experts that the batch's prompts used most, frozen when decoding begins."""

    def begin_request(self, step: int) -> None:
        """The last prompt's experts are of no matter."""
        self.score[:] = 0

    def prompt(self, layer: int, step: int, active: NDArray[np.bool_]) -> None:
        """Uses so far."""
        self.score[layer] += active.sum(0)


class Popular(Retention):
    """The experts that other traces of the model used most."""

    def __init__(self, score: Floats, offline: Offline) -> None:
        super().__init__(score, offline)
        if offline.popularity is None:
            raise ValueError("this policy needs the popularity of experts in other traces")
        score[:] = offline.popularity


def _last_steps(active: NDArray[np.bool_], step: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The experts that some token needs, and the step of the last one that does."""
    experts = np.flatnonzero(active.any(0))
    return experts, step - np.argmax(active[::-1, experts], axis=0)


def faded_uses(active: NDArray[np.bool_], decay: float) -> NDArray[np.float64]:
    """Sum over the tokens that need an expert of ``decay`` ** age, the last one's age 0; float64 [experts]."""
    ages = np.arange(len(active) - 1, -1, -1, dtype=np.float64)
    return np.asarray(decay**ages @ active, dtype=np.float64)
