"""The offloading pipeline of one pool, with its prefetch worker thread (paper, sections 6 and 8.2).

Per layer, after routing: ``enter`` lands finished prefetches and loads misses; ``prefetch`` may create tasks; ``leave``
comes just before the experts are computed. After ``enter`` returns, slot i holds the bytes of expert i, until the next
``enter``. Per needed expert it counts a *hit* (resident when the event starts), *late* (its prefetch is in flight and
waited for) or a *miss* (loaded on demand; ``late_unsent`` of these had a prefetch that was still queued and is
cancelled). While it waits, no new prefetch starts. A landed prefetch is *used* when it is needed, *wasted* when it is
evicted before.

With ``enter(..., loads)`` only ``loads[m]`` of an event's m misses are loaded, those of the highest scores; the others
have slot -1 and are the caller's to compute where they are (``host_computed``). The next ``leave`` makes tasks of the
ones whose score is higher than the pool's lowest, due when their layer comes again and after all that is forecast.

The worker sends one task after the other, the next one chosen by ``order`` (`seqmoe.core.schedule.ORDERS`, may be set
at any time). ``reserve`` says when a task takes its slot: at ``"selection"``, when its transfer begins, or as in print
at ``"creation"``, where the tasks of one step can hold more slots than a small pool has. A task that finds no slot, or
``fetch_limit`` reached, stays queued; it is tried again when a layer is left. With equal timing these are the decisions
of `seqmoe.core.loop`.

Tasks are dropped when ``position`` reaches their deadline, or falls (a new request). If no slot is free, an event first
cancels the newest unsent task that holds one, then gives up the landed prefetch of another layer with the lowest score,
then waits for the transfer in flight: it fails only if it needs more experts than the pool has slots.

A prefetch whose transfer raises ``TransferError`` leaves its slot EMPTY and is counted in ``prefetch_failed``: the
expert is loaded on demand when it is needed. A load on demand is tried three times, then its error is raised. Any other
error in the worker ends it and is raised by the next ``enter``, ``prefetch`` or ``settle``.

All calls belong to one thread. The worker sleeps when idle and holds no GIL. It takes slots while Python runs, so
between calls only ``pool()`` shows owners and states of one moment. The table's ``score`` is written freely; what was
written counts from the next ``enter``, ``prefetch`` or ``leave``. Use it as a context manager, or call ``stop()``,
which takes less than 100 ms even in the middle of a transfer.
"""

from __future__ import annotations

from seqmoe.core._native import OffloadPipeline

__all__ = ["OffloadPipeline"]
