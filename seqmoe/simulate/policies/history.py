"""Policies that know what has been used: recency, frequency, and sets that are fixed beforehand.

All return float32 scores [steps, layers, experts]; how they read an array is told in `seqmoe.simulate.policies.base`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from seqmoe.simulate.policies.base import Floats, Routing, Scores

# A use counts half as much after some fourteen steps. The best of 0.7, 0.9, 0.95 and 0.98 on GPT-OSS-20B's routing at
# all residencies from 15 to 45 %.
DECAY = 0.95


def lru(routing: Routing) -> Scores:
    """Least recently used: the score is the position of the last event that needed the expert."""
    return Scores(used=last_use(routing).astype(np.float32))


def lfu(routing: Routing) -> Scores:
    """Least frequently used: the number of events so far that needed it, evicted since or not; then recency.

    Counts are of the running batch alone. The two are told as one number, the place of the pair in their order.
    """
    count = np.cumsum(routing.active, axis=0, dtype=np.int64)
    pair = count * (routing.active.shape[0] * routing.active.shape[1] + 1) + last_use(routing) + 1
    return Scores(used=_places(pair))


def lfu_decay(routing: Routing) -> Scores:
    """Least frequently used with decay: a use weighs `DECAY` ** age, in steps (LRFU of Lee et al., 2001).

    The score is the logarithm of the sum, moved by the time at which it was taken: an unused expert's score then stays
    as it is while it fades, and scores of layers that were updated at different times compare.
    """
    total = lfilter([1.0], [1.0, -DECAY], routing.active.astype(np.float64), axis=0)
    since = routing.positions[..., None] / routing.active.shape[1]
    with np.errstate(divide="ignore"):
        return Scores(used=(np.log(total) - since * np.log(DECAY)).astype(np.float32))


def prefill_hot(routing: Routing) -> Scores:
    """The experts that the prompt used most, frozen when decoding begins (the paper's PrefillHot, section 9.3).

    Fitted on the steps of the same batch that are not counted: the prefill, and the warm-up where there is one. Until
    then, and for the first fill, the counts so far stand in. A miss is loaded in the place of the coldest expert.
    """
    counted = np.maximum.accumulate(routing.counted)
    return Scores(used=np.cumsum(routing.active & ~counted[:, None, None], axis=0).astype(np.float32))


def popularity(routing: Routing) -> Scores:
    """The experts that other traces of the model used most, fixed; fitted on training traces, first fill on demand."""
    if routing.popularity is None:
        raise ValueError("this policy needs the popularity of experts in other traces")
    return Scores(used=np.broadcast_to(routing.popularity, routing.active.shape))


def last_use(routing: Routing) -> NDArray[np.int64]:
    """Position of the last event up to (t, p) that needed each expert, -1 for none, int64 [steps, layers, experts]."""
    stamps = np.where(routing.active, routing.positions[..., None], -1)
    last: NDArray[np.int64] = np.maximum.accumulate(stamps, axis=0)
    return last


def decayed_frequency(active: NDArray[np.bool_], decay: float = DECAY) -> Floats:
    """Weighted share of the steps so far that used the expert, float32 [steps, layers, experts]; weights decay ** age.

    Step t counts step t itself.
    """
    total = lfilter([1 - decay], [1.0, -decay], active.astype(np.float32), axis=0)
    weight = 1 - decay ** np.arange(1, len(active) + 1)
    return (total / weight[:, None, None]).astype(np.float32)


def frequency(active: NDArray[np.bool_]) -> Floats:
    """Share of the steps so far that used the expert, float32 [steps, layers, experts]; step t counts itself."""
    count = np.cumsum(active, axis=0, dtype=np.float32)
    return count / np.arange(1, len(active) + 1, dtype=np.float32)[:, None, None]


def as_step_began(values: Floats, first: float = 0.0) -> Floats:
    """The same values as of the step before; ``first`` before the first step."""
    earlier = np.full_like(values, first)
    earlier[1:] = values[:-1]
    return earlier


def _places(values: NDArray[np.int64]) -> Floats:
    """Each value's place among the distinct ones, as float32, which is exact up to 2 ** 24 of them."""
    _, place = np.unique(values, return_inverse=True)
    return place.reshape(values.shape).astype(np.float32)
