"""The offloading pipeline of one pool, with its prefetch worker thread (paper, sections 6 and 8.2).

Per layer, after routing: ``enter`` lands finished prefetches and loads misses; ``prefetch`` may create tasks; ``leave``
comes just before the experts are computed. After ``enter`` returns, slot i holds the bytes of expert i, until the next
``enter``. Per needed expert it counts a *hit* (resident when the event starts), *late* (its prefetch is in flight and
waited for) or a *miss* (loaded on demand; ``late_unsent`` of these had a prefetch that was still queued and is
cancelled). While it waits, no new prefetch starts. A landed prefetch is *used* when it is needed, *wasted* when it is
evicted before.

Tasks are dropped when ``position`` reaches their deadline, or falls (a new request). If no slot is free, an event first
cancels the newest unsent task, then gives up the landed prefetch of another layer with the lowest score, then waits
for the transfer in flight: it fails only if it needs more experts than the pool has slots.

All calls belong to one thread. The worker sleeps when idle, holds no GIL and never touches the slot table. Its failure
is raised by the next ``enter`` or ``prefetch``. Use it as a context manager, or call ``stop()``.
"""

from __future__ import annotations

from seqmoe.core._native import OffloadPipeline

__all__ = ["OffloadPipeline"]
