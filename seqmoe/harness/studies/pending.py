"""Which cells of a study have no result yet, or one that is out of date, and how long they will take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqmoe.harness.failures import killed_from_outside
from seqmoe.harness.fingerprint import software
from seqmoe.harness.studies.kinds import Study
from seqmoe.harness.studies.record import StudyRecord, latest_of_cells
from seqmoe.harness.studies.sources import Source
from seqmoe.spec.study import StudyCell


def pending(
    study: Study,
    cells: Sequence[StudyCell],
    sources: Mapping[str, Source],
    records: Sequence[StudyRecord],
    environment: Mapping[str, Any],
    resume: bool,
    folder: Path,
) -> list[StudyCell]:
    """Cells without a result on these traces, or with one that would be another by what has been trained since.

    A failure is tried again by other software, or if it was killed.
    """
    if not resume:
        return list(cells)
    found_of, waiting = newest(cells, sources, records), []
    for cell in cells:
        found = found_of.get(cell.key)
        if found is not None and found.status.ok:
            stands = not _outdated(study, found, sources.get(cell.traces), folder)
        else:
            stands = found is not None and _stands(found, environment)
        if not stands:
            waiting.append(cell)
    return waiting


def _outdated(study: Study, record: StudyRecord, source: Source | None, folder: Path) -> bool:
    """Of traces that are yet to be collected nobody knows."""
    return source is not None and study.kind.outdated(record, source.location, predictors_in(folder))


def seconds(study: Study, cell: StudyCell, sources: Mapping[str, Source], folder: Path) -> float:
    """What a cell takes at least. Of traces that are yet to be collected nothing is ready."""
    source = sources.get(cell.traces)
    ready = source is not None and study.kind.ready(cell, source.digest, source.location, predictors_in(folder))
    return study.kind.seconds(cell, ready)


def predictors_in(folder: Path) -> Path:
    """Where a host's predictors are kept, ``folder`` being that of its records."""
    return folder / "predictors"


def newest(
    cells: Iterable[StudyCell], sources: Mapping[str, Source], records: Iterable[StudyRecord]
) -> dict[str, StudyRecord]:
    """The last record of each cell on its traces, by the cell's key; on any traces where those are not known yet."""
    wanted = {cell.key: sources.get(cell.traces) for cell in cells}
    found = {}
    for record in latest_of_cells(records):
        if record.cell_key in wanted:
            source = wanted[record.cell_key]
            if source is None or source.digest == record.digest:
                found[record.cell_key] = record
    return found


def _stands(failure: StudyRecord, environment: Mapping[str, Any]) -> bool:
    same = software(failure.environment) == software(dict(environment))
    return same and failure.status.kind != "not_installed" and not killed_from_outside(failure.status)
