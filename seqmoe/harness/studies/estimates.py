"""What a study will take beside its time: memory for its traces, and disk for what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seqmoe.harness.store import read_records
from seqmoe.harness.studies.record import ANY, StudyRecord, to_line
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class StudyEstimate:
    """Bytes. ``memory`` is the least: the traces of the cells that run side by side.

    ``disk`` is what will be written, predictors and records, as earlier records of the same cells tell; ``unknown``
    counts the cells that have none.
    """

    memory: int
    disk: int
    unknown: int


def estimate_study(home: Home, suite: str, cells: Mapping[str, str | None], jobs: int, folder: Path) -> StudyEstimate:
    """Estimate cells: each one's key with where its traces are (None: to be collected first).

    ``folder`` is that of the host's records, ``jobs`` how many cells run side by side.
    """
    sizes: dict[str, int] = {}
    for path in (*sorted(home.paper.parent.glob(f"published/*/{suite}.jsonl")), folder / f"{suite}.jsonl"):
        for record in read_records(path, ANY):
            if isinstance(record, StudyRecord) and record.status.ok:
                kept = record.observations.get("cost", {}).get("bytes", 0)
                sizes[record.cell_key] = int(kept) + len(to_line(record)) + 1
    traces = sorted((_bytes(Path(location)) for location in cells.values() if location is not None), reverse=True)
    known = [sizes[key] for key in cells if key in sizes]
    return StudyEstimate(sum(traces[:jobs]), sum(known), len(cells) - len(known))


def _bytes(path: Path) -> int:
    """Of a file, or of all files of a folder; 0 for an address."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0
