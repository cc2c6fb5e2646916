"""Routing traces through one pool: the event loop over scores and tasks, and a faster replay of three policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.core import _native
from seqmoe.core.loop import EventLoop, LoopCounts, PrefetchRules

__all__ = ["POLICIES", "EventLoop", "LoopCounts", "PrefetchRules", "ReplayCounts", "replay"]

# In the order of the enumeration in native/replay.h.
POLICIES = ("lru", "lfu", "belady")


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
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r}: must be one of {', '.join(POLICIES)}")
    if min(layers, experts, slots) < 1:
        raise ValueError("layers, experts and slots must be at least 1")
    sizes = np.diff(event_start)
    if len(sizes) != len(event_layer) or event_start[0] != 0 or event_start[-1] != len(expert) or (sizes < 0).any():
        raise ValueError("event_start must lead from 0 to the number of accesses, one step per event")
    if not 0 <= count_from_event <= len(event_layer):
        raise ValueError(f"count_from_event = {count_from_event}: there are {len(event_layer)} events")
    if not (_all_below(event_layer, layers) and _all_below(expert, experts)):
        raise ValueError("a layer or an expert lies outside the geometry")
    key = np.repeat(event_layer, sizes) * np.int32(experts) + expert
    start, count_from = event_start, count_from_event
    if sequential:
        start, count_from = np.arange(len(expert) + 1), int(event_start[count_from_event])
    hits, needed, evictions = _native.replay(layers * experts, slots, start, key, count_from, POLICIES.index(policy))
    return ReplayCounts(hits, needed, evictions, needed - hits)


def _all_below(values: NDArray[np.int32], limit: int) -> bool:
    return bool(((values >= 0) & (values < limit)).all())
