"""The hit-rate replay: a routing trace through one cache, in C++."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.core import _native

_POLICY = {"lru": _native.Policy.LRU, "lfu": _native.Policy.LFU, "belady": _native.Policy.BELADY}
POLICIES = tuple(_POLICY)


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """Sums over the counted events: ``needed = hits + loads``."""

    hits: int
    needed: int
    evictions: int
    loads: int


def replay(
    layers: int,
    experts: int,
    slots: int,
    event_layer: NDArray[np.int32],
    event_start: NDArray[np.int64],
    expert: NDArray[np.int32],
    count_from_event: int,
    policy: str,
    sequential: bool = False,
) -> ReplayCounts:
    """Replay events from a cold cache of ``slots`` slots that all layers share, and count from one event on.

    Event i needs the distinct experts ``expert[event_start[i]:event_start[i + 1]]`` of layer ``event_layer[i]``;
    ``expert`` int32 [m], ``event_layer`` int32 [n], ``event_start`` int64 [n + 1]. An expert is a hit iff it is
    resident when the event starts, and nothing an event needs is evicted by it. With ``sequential`` every access is an
    event of its own, in order.

    A policy is a score, and the resident expert with the lowest goes, ties by the lower key: ``lru`` the last event
    that needed it, ``lfu`` the number of events so far that did (evicted since or not), then the last of them,
    ``belady`` the nearness of the next that will, admission being forced.

    Raises ``ValueError`` for an unknown policy or malformed arrays, ``RuntimeError`` for an event that exceeds the
    slots.
    """
    if policy not in _POLICY:
        raise ValueError(f"policy {policy!r}: must be one of {', '.join(POLICIES)}")
    return ReplayCounts(
        *_native.replay(
            layers,
            experts,
            slots,
            event_layer,
            event_start,
            expert,
            count_from_event,
            _POLICY[policy],
            sequential,
        )
    )
