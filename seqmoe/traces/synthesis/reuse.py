"""Statistics that synthetic routing is fitted to: how soon an expert is used again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def repeats(experts: NDArray[np.int16], count: int, window: int, skip: int = 0) -> float:
    """Share of selections whose expert one of the ``window`` tokens before selected too, in the same layer.

    ``experts`` int16 [steps, layers, k] out of ``count``; the first ``max(skip, window)`` tokens are not judged.
    """
    steps, layers, _ = experts.shape
    active = np.zeros((steps, layers, count), dtype=bool)
    np.put_along_axis(active, experts.astype(np.int64), True, axis=-1)
    seen = np.cumsum(active, axis=0, dtype=np.int32)
    first = max(skip, window)
    before = seen[first - 1 : steps - 1].copy()
    if first > window:
        before -= seen[first - 1 - window : steps - 1 - window]
    else:
        before[1:] -= seen[: steps - 1 - first]
    judged = active[first:]
    return float((judged & (before > 0)).sum() / max(judged.sum(), 1))
