"""Which experts an LRU pool would hold when a step needs them: what recall on misses is counted against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import MISSING

NEVER = np.iinfo(np.int32).max


def reuse_distances(experts: NDArray[np.int16], experts_per_layer: int) -> NDArray[np.int32]:
    """How many other experts of the shared pool were used more recently, when the event (step, layer) starts.

    ``experts`` int16 [steps, layers, k]; the result int32 of the same shape, `NEVER` before the first use and where the
    layer is `MISSING`, which is no event. An event-atomic LRU of any number of slots from k on, cold at the first step,
    holds the expert iff the distance is smaller than its slots: recency is a total order (event, then key) of which the
    pool always holds the upper end. So one pass serves every residency; `seqmoe.core.simulate.replay` counts the same.
    """
    steps, layers, top_k = experts.shape
    layer_of = np.repeat(np.arange(layers, dtype=np.int64), top_k)
    earlier = layer_of[None, :] < layer_of[:, None]
    distances = np.full((steps, layers * top_k), NEVER, dtype=np.int32)
    # When each expert key was last used: event * experts + expert, -1 for never.
    stamps = np.full(layers * experts_per_layer, -1, dtype=np.int64)
    for step, chosen in enumerate(experts.reshape(steps, layers * top_k).astype(np.int64)):
        present = np.flatnonzero(chosen != MISSING)
        layer, expert = layer_of[present], chosen[present]
        before = stamps[layer * experts_per_layer + expert]
        newer = len(stamps) - np.searchsorted(np.sort(stamps), before, side="right")
        # The events of this step that came first have overtaken it since, unless they were newer already.
        overtaken = (before[None, :] < before[:, None]) & earlier[np.ix_(present, present)]
        distances[step, present] = np.where(before < 0, NEVER, newer + overtaken.sum(1))
        stamps[layer * experts_per_layer + expert] = (step * layers + layer) * experts_per_layer + expert
    return distances.reshape(steps, layers, top_k)
