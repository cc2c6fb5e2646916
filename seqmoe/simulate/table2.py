"""Table 2 of the paper: six prefetch tasks, room for four transfers, and what each order makes of them.

The print gives no timeline. This one yields its sets: positions 0, 1, 2 come one after another, at each the transfers
that fit before the next deadline are sent one by one, and tasks that are due by then have expired.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from seqmoe.core.schedule import ORDERS, Order, feasible_within, first_task

CANDIDATES = "ABCDEF"
DEADLINES = (1, 2, 2, 3, 3, 3)
CONFIDENCES = (0.55, 0.90, 0.40, 0.75, 0.70, 0.30)
# Transfers that fit before deadlines 1, 2 and 3.
CAPACITIES = (1, 3, 4)
# MoE-Infinity's priority depends on the number of layers; from 3 on its set is the printed one.
LAYERS = 3

TITLES: dict[Order, str] = {
    "matroid": "SeqMoE (matroid greedy)",
    "infinity": "MoE-Infinity",
    "promoe": "ProMoE",
    "confidence": "Confidence alone",
    "edf": "Earliest deadline alone",
}
# What the paper prints, by the order's name.
PRINTED: dict[str, str] = {"optimal": "ABDE", "infinity": "BDEF", "promoe": "ABCD"}


@dataclass(frozen=True, slots=True)
class Selection:
    """What one order sends: the candidates in alphabetical order, and their total confidence."""

    order: str
    title: str
    chosen: str
    confidence: float


def table2() -> tuple[Selection, ...]:
    """The best set by exhaustive search, then that of every order."""
    rows = [_selection("optimal", "Optimal (exhaustive search)", _optimal())]
    deadline, confidence = np.array(DEADLINES), np.array(CONFIDENCES, dtype=np.float32)
    for order in ORDERS:
        if order == "matroid":
            chosen = feasible_within(deadline, confidence, np.array((0, *CAPACITIES))).tolist()
        else:
            chosen = _sent(order)
        rows.append(_selection(order, TITLES[order], chosen))
    return tuple(rows)


def _selection(order: str, title: str, chosen: list[int]) -> Selection:
    total = sum(CONFIDENCES[task] for task in chosen)
    return Selection(order, title, "".join(CANDIDATES[task] for task in sorted(chosen)), round(total, 9))


def _optimal() -> list[int]:
    tasks = range(len(CANDIDATES))
    sets = [subset for size in range(len(tasks) + 1) for subset in combinations(tasks, size) if _in_time(subset)]
    return list(max(sets, key=lambda subset: sum(CONFIDENCES[task] for task in subset)))


def _in_time(subset: tuple[int, ...]) -> bool:
    due = [sum(DEADLINES[task] <= deadline for task in subset) for deadline in (1, 2, 3)]
    return all(tasks <= capacity for tasks, capacity in zip(due, CAPACITIES, strict=True))


def _sent(order: Order) -> list[int]:
    waiting, sent = list(range(len(CANDIDATES))), []
    for position, transfers in enumerate(np.diff(CAPACITIES, prepend=0).tolist()):
        for _ in range(transfers):
            deadline = np.array([DEADLINES[task] for task in waiting])
            confidence = np.array([CONFIDENCES[task] for task in waiting], dtype=np.float32)
            first = first_task(order, deadline, confidence, position, LAYERS, earliest=position + 1)
            if first >= 0:
                sent.append(waiting.pop(first))
    return sent
