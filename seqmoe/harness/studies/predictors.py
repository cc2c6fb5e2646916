"""Which predictor a replay cell takes: figure 8's, the one that ships with the package, or one that a cell made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seqmoe
from seqmoe.harness.store import read_records
from seqmoe.harness.studies.record import STUDIES, PredictionRecord, ReplayRecord, latest_of_cells
from seqmoe.predictor.container import read_container
from seqmoe.spec.replay import ReplayCell
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.split import split

REFERENCE_PREDICTORS = Path(seqmoe.__file__).parent / "reference" / "checkpoint" / "predictor"
TEST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Found:
    """A predictor's file, where it is from (``fig8``, ``package`` or ``replay``), and its minutes of training."""

    path: Path
    origin: str
    minutes: float

    def about(self, kind: str) -> dict[str, Any]:
        """What a record says of it; ``digest`` is twelve hex digits of the file's SHA-256."""
        content = hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]
        return {"kind": kind, "from": self.origin, "minutes": self.minutes, "file": self.path.name, "digest": content}


def find_predictor(cell: ReplayCell, content: str, traces: TraceSet | str, folder: Path) -> Found | None:
    """The best predictor that there is for a cell, None if one has to be made.

    ``content`` is the traces' digest, ``traces`` they or their location, ``folder`` where predictors are kept: that of
    figure 8 which was trained longest on these traces, then the package's if it was trained on just this training part,
    then one that a replay cell made before.
    """
    if (recorded := _recorded(cell, content, folder)) is not None:
        return recorded
    if (shipped := _shipped(cell, traces)) is not None:
        return shipped
    path = own_path(cell, content, folder)
    return Found(path, "replay", cell.minutes) if path.is_file() else None


def own_path(cell: ReplayCell, content: str, folder: Path) -> Path:
    """Where the predictor is kept that a cell makes for itself and others of the same budget."""
    return folder / f"{cell.predictor}-{content}-{cell.minutes:g}min-{cell.seed}.safetensors"


def outdated(record: ReplayRecord, location: str, folder: Path) -> bool:
    """Whether a record's forecasts are of another predictor than the cell would take now."""
    if not record.cell.predictor:
        return False
    found = find_predictor(record.cell, record.digest, location, folder)
    return found is not None and not _same(record.observations["predictor"], found.about(record.cell.predictor))


def _same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    # Records of earlier versions do not tell the content.
    names = ("digest",) if "digest" in before else ("kind", "from", "minutes", "file")
    return all(before.get(name) == now[name] for name in names)


def _recorded(cell: ReplayCell, content: str, folder: Path) -> Found | None:
    """Of figure 8: of this kind, on these traces, no variant; the one that was trained longest."""
    records = folder.parent / "fig8.jsonl"
    if not records.is_file():
        return None
    best: Found | None = None
    for record in latest_of_cells(read_records(records, STUDIES)):
        if not isinstance(record, PredictionRecord) or not record.status.ok or record.digest != content:
            continue
        path = folder / f"{record.cell_key}.safetensors"
        same = (record.cell.predictor, record.cell.variant, record.cell.seed) == (cell.predictor, "", cell.seed)
        if same and path.is_file() and (best is None or record.cell.minutes > best.minutes):
            best = Found(path, "fig8", record.cell.minutes)
    return best


def _shipped(cell: ReplayCell, traces: TraceSet | str) -> Found | None:
    """The reference model's predictor, if it was trained on just this training part."""
    path = REFERENCE_PREDICTORS / f"{cell.predictor}.safetensors"
    if cell.seed or not path.is_file():
        return None
    about, _ = read_container(path)
    train, _ = split(load_traces(traces) if isinstance(traces, str) else traces, TEST_SHARE)
    same = about["training"].get("traces") == digest(train)
    return Found(path, "package", float(about["training"].get("minutes") or 0.0)) if same else None
