"""What of a cell is the work, and what is the system's own: only systems that did the same work are compared."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from seqmoe.harness.weights import has_predictor
from seqmoe.spec.suite import Cell

_OWN = {"system", "predictor", "execution"}


def work_of(cell: Cell) -> dict[str, Any]:
    """The fields of a cell that say what is to be done, with how many of the experts on the device."""
    return {name: value for name, value in asdict(cell).items() if name not in _OWN}


def same_work(a: Cell, b: Cell) -> bool:
    """Whether two systems' cells differ only in the system.

    Full load has no residency, a wrapped system no execution mode and many a system no predictor: these fit all.
    """
    mine, theirs = work_of(a), work_of(b)
    if "full" in (a.system, b.system):
        theirs["residency"] = mine["residency"]
    if mine != theirs or (a.execution and b.execution and a.execution != b.execution):
        return False
    return a.predictor == b.predictor or not (has_predictor(a) and has_predictor(b))
