"""The prefetch worker of a device: the thread at the host's end of a control region (`seqmoe.core.control`).

``DeviceWorker(words, link, budget, layers, experts, slots, order)`` starts it. ``words`` int64 is a region, mapped into
the device or, where a CPU plays the device, in ordinary memory; ``link`` is any of `seqmoe.core.link`, ``budget`` and
``order`` are those of `seqmoe.core.pipeline`, whose worker chooses from the same queue by the same rules. ``slots`` is
the size of the pool: a device that lends another slot ends the worker with an error.

The worker reads tasks and lent slots, always sends the task that the order selects next into the slot that was lent
first, and posts a landing for it: with the expert's key if the bytes are there, with ``NOTHING`` if they did not
arrive (``TransferError``). Exactly one landing comes back for each lent slot. While the device copies misses, no
transfer and no further piece of one begins.

A task is dropped when its deadline has passed, or is too near to be met (``overdue``); when its expert is queued, or
landed in a slot that the device has not processed (``duplicate``); and when it names no expert (``refused``). When the
position falls a new request has begun, and all tasks are dropped; call ``forget()`` while the device rests between two
requests, or tasks that it dispatches just after the fall are dropped too.

``statistics()`` counts: of the ``tasks`` read each is overdue, duplicate, refused, ``sent`` or still ``queued``; of
those sent each ``landed`` or ``failed``, ``late`` ones after their deadline. ``bytes`` are what landed, ``late_bytes``
the late share, which the device loaded on demand meanwhile; whether a landed expert was of use only the device knows,
and how long the link was busy the link (``busy_seconds``, without the time in which it was held back).
``overrun`` tasks were lost because the device wrote more than the ring holds. ``returned`` slots came back unused.

Any other error ends the thread: it gives back all slots, sets ``FAILED``, and is raised by ``check()``. Use it as a
context manager, or call ``stop()``, which takes less than 100 ms even in the middle of a transfer and leaves every slot
lent so far with a landing. A later worker may take up the same region. The link's memory must outlive the worker.
"""

from __future__ import annotations

from seqmoe.core._native import DeviceWorker

__all__ = ["DeviceWorker"]
