"""Policies that read the future: bounds, not rivals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.policies.base import Routing, Scores
from seqmoe.simulate.policies.history import last_use

# Steps that the limited oracle, and the forecasts in its place, look ahead (paper, figure 3 and section 7.1).
HORIZON = 8


def belady(routing: Routing) -> Scores:
    """Belady's MIN with forced admission: the farthest next use goes first. Optimal without prefetching."""
    return Scores(used=-next_use(routing).astype(np.float32))


def belady_8(routing: Routing) -> Scores:
    """Belady's MIN that sees eight steps ahead (the paper's Belady-8, figure 3).

    An expert that is not needed within the next eight steps of its layer is evicted first, the least recently used of
    those before the others.
    """
    coming = next_use(routing)
    seen = coming <= routing.positions[..., None] + HORIZON * routing.active.shape[1]
    # Past the horizon, positions of the past, all lower than the negative ones of the near future are made.
    past = last_use(routing) - 2.0 * routing.active.shape[0] * routing.active.shape[1]
    return Scores(used=np.where(seen, -coming, past).astype(np.float32))


def next_use(routing: Routing) -> NDArray[np.int64]:
    """Position of the first event after (t, p) that needs each expert, int64 [steps, layers, experts].

    Twice the number of events where there is none.
    """
    steps, layers, _ = routing.active.shape
    never = 2 * steps * layers
    stamps = np.where(routing.active, routing.positions[..., None], never)
    coming = np.full_like(stamps, never)
    coming[:-1] = np.minimum.accumulate(stamps[:0:-1], axis=0)[::-1]
    return coming
