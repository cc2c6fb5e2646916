"""The replay as its specification: a set of residents and a full scan for every eviction."""

from __future__ import annotations

NEVER = float("inf")


def replay(events, slots, count_from, policy):
    """``events`` is a list of sets of expert keys. Returns (hits, needed, evictions, loads) from one event on."""
    resident, loaded = set(), {}
    counts = [0, 0, 0, 0]

    def score(key, now):
        uses = [event for event in range(now) if key in events[event]]
        if policy == "lru":
            return uses[-1]
        if policy == "lfu":
            return len(uses), uses[-1]
        if policy == "lfu_resident":
            return sum(event >= loaded[key] for event in uses), uses[-1]
        return -next((event for event in range(now, len(events)) if key in events[event]), NEVER)

    for now, needed in enumerate(events):
        hits = resident & needed
        evictions = 0
        while len(resident | needed) > slots:
            resident.remove(min(resident - needed, key=lambda key: (score(key, now), key)))
            evictions += 1
        loaded |= dict.fromkeys(needed - resident, now)
        resident |= needed
        if now >= count_from:
            for index, value in enumerate((len(hits), len(needed), evictions, len(needed - hits))):
                counts[index] += value
    return tuple(counts)
