"""Joint prefetch scheduling: Job Sequencing with Deadlines by matroid greedy, then EDF (paper, Algorithm 1).

`ORDERS` are the ways to say which task is sent next. ``matroid`` is the paper's. The others look at one task at a time
(paper, section 3.2): ``infinity`` is MoE-Infinity's, the highest ``confidence * (1 - (deadline - position) / (layers +
1))``; ``promoe`` is ProMoE's, the earliest deadline, then the highest confidence; ``confidence`` is the highest alone,
``edf`` the earliest deadline alone, which knows no confidence.

Tasks are parallel arrays: ``deadline`` int64 [n], the position of the event that needs the expert, and ``confidence``
float32 [n]. Ties everywhere: higher confidence, then earlier deadline, then lower index. A NaN confidence, or a
deadline more than 2^20 positions ahead, raises ``ValueError``.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from seqmoe.core import _native

# In the order of the enumeration in native/orders.h.
Order = Literal["matroid", "infinity", "promoe", "confidence", "edf"]
ORDERS: tuple[Order, ...] = get_args(Order)


def feasible_set(
    deadline: NDArray[np.int64],
    confidence: NDArray[np.float32],
    position: int,
    budget_current: float,
    budget_average: float,
) -> NDArray[np.int32]:
    """Indices, ascending, of the set with the highest total confidence that meets all deadlines (lines 4-10).

    At most ``floor(max(1, budget_current) + budget_average * (d - position - 1))`` tasks are due by d. Tasks due by the
    next layer (``deadline <= position + 1``) are no candidates: they could not complete in time.
    """
    _check(deadline, confidence, position, budget_current, budget_average)
    return _native.feasible_set(deadline, confidence, position, budget_current, budget_average)


def feasible_within(
    deadline: NDArray[np.int64], confidence: NDArray[np.float32], capacity: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The same for any capacities: at most ``capacity[d]`` tasks are due by d, for d from 0; they must not decrease."""
    _check(deadline, confidence)
    if (np.diff(capacity, prepend=0) < 0).any():
        raise ValueError("capacity must be neither negative nor decreasing")
    if ((deadline < 0) | (deadline >= len(capacity))).any():
        raise ValueError(f"every deadline must lie in 0..{len(capacity) - 1}, where there is a capacity")
    return _native.feasible_within(deadline, confidence, capacity)


def select(
    deadline: NDArray[np.int64],
    confidence: NDArray[np.float32],
    position: int,
    budget_current: float,
    budget_average: float,
) -> int:
    """Index of the task to send next, the earliest deadline of the feasible set (line 11); -1 if it is empty."""
    _check(deadline, confidence, position, budget_current, budget_average)
    return _native.select(deadline, confidence, position, budget_current, budget_average)


def first_task(
    order: Order,
    deadline: NDArray[np.int64],
    confidence: NDArray[np.float32],
    position: int,
    layers: int,
    earliest: int | None = None,
) -> int:
    """Index of the task that an order other than ``matroid`` sends next; -1 if there is none.

    Tasks due before ``earliest`` are no candidates; it is ``position + 2`` by default, as in Algorithm 1, line 4.
    """
    if order not in ORDERS[1:]:
        raise ValueError(f"order {order!r}: must be one of {', '.join(ORDERS[1:])}; select() is for the matroid's")
    if layers < 1:
        raise ValueError(f"layers = {layers}: must be at least 1")
    _check(deadline, confidence, position)
    if np.isnan(confidence).any():
        raise ValueError("a confidence is not a number")
    if earliest is None:
        earliest = position + 2
    return _native.first_task(ORDERS.index(order), deadline, confidence, position, layers, earliest)


def _check(
    deadline: NDArray[np.int64],
    confidence: NDArray[np.float32],
    position: int = 0,
    budget_current: float = 0.0,
    budget_average: float = 0.0,
) -> None:
    if len(deadline) != len(confidence):
        raise ValueError(f"{len(deadline)} deadlines, but {len(confidence)} confidences")
    if position < 0:
        raise ValueError(f"position = {position}: must not be negative")
    if not (math.isfinite(budget_current) and 0 <= budget_average < math.inf):
        raise ValueError(f"budgets {budget_current}, {budget_average}: must be finite, the average not negative")
