"""Routing traces through one pool: the event loop over scores and tasks, and a faster replay of three policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.core import _native
from seqmoe.core.loop import EventLoop, LoopCounts, PrefetchRules

__all__ = ["POLICIES", "EventLoop", "LoopCounts", "PrefetchRules", "Replay", "ReplayCounts", "replay"]

# In the order of the enumeration in native/replay.h.
POLICIES = ("lru", "lfu", "belady", "lfu_resident")


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """Sums over the counted events: ``needed = hits + loads``."""

    hits: int
    needed: int
    evictions: int
    loads: int


class Replay:
    """One cold cache of ``slots`` slots that all layers share, under a policy that needs no scores from its caller.

    An expert is a hit iff it is resident when the event starts, and nothing an event needs is evicted by it. With
    ``sequential`` every access is an event of its own, in order.

    The resident expert with the lowest score goes, ties by the lower key: ``lru`` the last event that needed it,
    ``lfu`` the number of events so far that did (evicted since or not), then the last of them, ``belady`` the nearness
    of the next that will, admission being forced. ``lfu_resident`` is LFU that forgets an expert's count when it is
    evicted, as other cache simulators define it.

    The counts equal those of `EventLoop` over such scores, an index in place of its search.
    """

    def __init__(self, layers: int, experts: int, slots: int, policy: str, sequential: bool = False) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy {policy!r}: must be one of {', '.join(POLICIES)}")
        if min(layers, experts, slots) < 1:
            raise ValueError("layers, experts and slots must be at least 1")
        if layers * experts > np.iinfo(np.int32).max - 1:
            raise ValueError(f"{layers} layers of {experts} experts: too many to number")
        self._layers, self._experts, self._slots = layers, experts, slots
        self._sequential, self._policy = sequential, policy
        self._fed = False
        self._replay = _native.make_replay(layers, experts, slots, POLICIES.index(policy), sequential)

    def feed(
        self,
        event_layer: NDArray[np.int32],
        event_start: NDArray[np.int64],
        expert: NDArray[np.int32],
        count_from_event: int = 0,
    ) -> None:
        """Run the next block of events, and count from one of them on; a long trace need not be in memory at once.

        Event i needs the distinct experts ``expert[event_start[i]:event_start[i + 1]]`` of layer ``event_layer[i]``;
        ``expert`` int32 [m], ``event_layer`` int32 [n], ``event_start`` int64 [n + 1]. Belady takes a single block.

        Raises ``ValueError`` for arrays that do not fit, ``RuntimeError`` for an event that exceeds the slots.
        """
        if self._policy == "belady" and self._fed:
            raise ValueError("belady must see the whole trace: feed it in one block")
        sizes = np.diff(event_start)
        if len(sizes) != len(event_layer) or event_start[0] != 0 or event_start[-1] != len(expert) or (sizes < 0).any():
            raise ValueError("event_start must lead from 0 to the number of accesses, one step per event")
        if not 0 <= count_from_event <= len(event_layer):
            raise ValueError(f"count_from_event = {count_from_event}: there are {len(event_layer)} events")
        if not (_all_below(event_layer, self._layers) and _all_below(expert, self._experts)):
            raise ValueError("a layer or an expert lies outside the geometry")
        largest = 1 if self._sequential else int(sizes.max(initial=0))
        if largest > self._slots:
            raise RuntimeError(f"an event needs {largest} experts at once, but there are {self._slots} slots")
        self._fed = True
        self._replay.feed(event_layer, event_start, expert, count_from_event)

    def counts(self) -> ReplayCounts:
        """What was counted so far."""
        hits, needed, evictions = self._replay.counts()
        return ReplayCounts(hits, needed, evictions, needed - hits)


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
    """The counts of a whole trace; arguments as those of `Replay` and its ``feed``."""
    run = Replay(layers, experts, slots, policy, sequential)
    run.feed(event_layer, event_start, expert, count_from_event)
    return run.counts()


def _all_below(values: NDArray[np.int32], limit: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < limit)
