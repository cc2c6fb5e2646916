"""What the event loop counts: in all, and apart by layer and by place in the decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What is counted for each layer and each band too, in the order of struct Place in native/loop.h.
PLACED = ("hits", "needed", "late", "loads", "sent", "used", "wasted")


@dataclass(frozen=True, slots=True, eq=False)
class LoopCounts:
    """Sums over what was counted: ``needed = hits + misses``.

    Of the misses, ``late`` were in flight and waited for, ``loads`` were loaded on demand. ``assigned`` and
    ``assigned_hits`` count an expert once for each request that needs it, where the others count it once an event. Of
    the prefetch tasks ``created``, ``sent`` went to the link and ``dropped`` were overdue, needed before they were
    sent, or gave up their slot. Of the prefetches ``landed``, ``used`` were needed later (the late ones are among them)
    and ``wasted`` were evicted before. ``evictions`` are experts that lost their slot to another.

    A task is dropped where it was created, a prefetch lands, is used or wasted where it was sent: what was begun in
    uncounted events is never a part of these, so ``dropped <= created`` and ``used + wasted <= landed <= sent``. A task
    that was created uncounted and sent later is in ``sent`` alone, which is all that moved while it was counted.

    ``layers`` int64 [layers, 7] and ``bands`` int64 [bands, 7] are the counts of `PLACED` apart: by the expert's layer,
    and by the step of the event; prefetches by the step in which they were sent.
    """

    hits: int
    needed: int
    late: int
    loads: int
    sent: int
    used: int
    wasted: int
    assigned_hits: int
    assigned: int
    created: int
    landed: int
    dropped: int
    evictions: int
    layers: NDArray[np.int64]
    bands: NDArray[np.int64]

    @staticmethod
    def of(counts: dict[str, Any]) -> LoopCounts:
        """From what the extension counted."""
        apart = {name: np.array(counts[name], dtype=np.int64).reshape(-1, len(PLACED)) for name in ("layers", "bands")}
        placed = dict(zip(PLACED, counts["all"], strict=True))
        rest = {name: value for name, value in counts.items() if name != "all"}
        return LoopCounts(**(rest | placed | apart))

    @property
    def misses(self) -> int:
        """Needed experts that were not resident: late ones and those loaded on demand."""
        return self.late + self.loads
