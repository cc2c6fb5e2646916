"""Whether an emulated run kept to its pace, of the link and of the layers; a busy machine gives no result."""

from __future__ import annotations

from seqmoe.harness.record import Observations, Record, Status
from seqmoe.runtime.emulation import MOST_OVERRUNS
from seqmoe.spec.suite import Cell

TOLERANCE = 0.25


def verdict(cell: Cell, status: Status, observations: Observations) -> Status:
    """The status after the check.

    ``invalid`` if the reached overlap ratio is more than 25 % off the asked one, or over 5 % of the layers ended late.
    """
    fault = _fault(cell, observations) if status.ok else ""
    return Status("invalid", fault) if fault else status


def may_pass_later(record: Record) -> bool:
    """Whether this failure was the machine's at that time only, so that the next sweep tries again."""
    status = record.status
    return status.kind == "invalid" and status.reason == _fault(record.cell, record.observations)


def _fault(cell: Cell, observations: Observations) -> str:
    if cell.lane != "emulated":
        return ""
    late, factor = (observations.stats.get(name) for name in ("overrun_share", "dilation"))
    if isinstance(late, (int, float)) and late > MOST_OVERRUNS:
        return (
            f"{late:.1%} of the layers ended late at dilation {factor}, {MOST_OVERRUNS:.0%} may: the machine was busy; "
            "run again when it is idle"
        )
    asked, reached = (observations.stats.get(name) for name in ("overlap_ratio", "overlap_ratio_achieved"))
    if not isinstance(asked, (int, float)) or not isinstance(reached, (int, float)):
        return ""
    if abs(reached - asked) <= TOLERANCE * asked:
        return ""
    return (
        f"the link reached {reached:.2f} experts a layer, {asked:.2f} were asked: the machine was busy; "
        "run again when it is idle"
    )
