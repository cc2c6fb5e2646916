"""By which factor emulated cells stretch time: one for a comparison, also where an interrupted sweep goes on."""

from __future__ import annotations

from collections.abc import Iterable

from seqmoe.harness.record import Record
from seqmoe.spec.suite import Cell


class Dilations:
    """What the last good record of each comparison ran with; nothing where the last one could not keep up."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._last: dict[tuple[object, ...], float | None] = {}
        for record in records:
            if record.cell.lane == "emulated":
                factor = record.observations.stats.get("dilation") if record.status.ok else None
                self._last[comparison(record.cell)] = float(factor) if isinstance(factor, (int, float)) else None

    def of(self, cell: Cell) -> float | None:
        """The factor that the cell is to run with; None where it has yet to be found."""
        return self._last.get(comparison(cell)) if cell.lane == "emulated" else None


def comparison(cell: Cell) -> tuple[object, ...]:
    """What cells have in common that are compared with each other."""
    return (cell.panel, cell.model, cell.hardware, cell.routing, cell.dataset, cell.batch)
