"""Records of studies: what was computed of one cell, one JSON line each, for every kind of study alike."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.record import OK, Record, Status, from_json, require_schema, table_of
from seqmoe.harness.store import Codec
from seqmoe.spec.declared import build
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.prediction import STUDY, PredictionCell
from seqmoe.spec.replay import STUDY as REPLAY
from seqmoe.spec.replay import ReplayCell
from seqmoe.spec.study import StudyCell

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """One cell of a study.

    ``observations`` are plain JSON; ``observations["traces"]`` says what was computed from, ``digest`` among it.
    ``environment`` is the fingerprint, ``started`` UTC (ISO 8601), ``seconds`` wall time.
    """

    schema: int
    study: str
    cell: StudyCell
    cell_key: str
    status: Status
    observations: dict[str, Any]
    environment: dict[str, Any]
    started: str
    seconds: float

    def __post_init__(self) -> None:
        if self.cell_key != self.cell.key:
            own = self.cell.key
            raise ValueError(f"cell_key = {self.cell_key!r}: the cell's own is {own!r}; a record is never edited")
        traces = self.observations.get("traces")
        if not isinstance(traces, dict) or not isinstance(traces.get("digest"), str):
            raise ValueError("observations: traces.digest is missing: nobody can tell what was computed from")

    @property
    def digest(self) -> str:
        """Twelve hex digits of the traces' content."""
        return str(self.observations["traces"]["digest"])


@dataclass(frozen=True, slots=True)
class PredictionRecord(StudyRecord):
    """One predictor, fitted and judged.

    ``observations`` of an `ok` record hold ``evaluation`` (`seqmoe.predictor.evaluation.Evaluation.as_dict`),
    ``training`` (the record of the training, with its ``curve``; empty for one that only counts), ``cost``
    (``one_step_us``, ``rollout_us`` per token, ``parameters``, ``bytes``) and ``traces`` (``digest``, ``model``,
    ``requests``, ``tokens``, ``train`` and ``test`` requests, ``router``, ``top_k``).
    """

    cell: PredictionCell

    def __post_init__(self) -> None:
        StudyRecord.__post_init__(self)
        lacking = [name for name in ("evaluation", "training", "cost") if name not in self.observations]
        if self.status.kind == OK and lacking:
            raise ValueError(f"status is ok, but observations lack {', '.join(lacking)}")


@dataclass(frozen=True, slots=True)
class ReplayRecord(StudyRecord):
    """Policies that were replayed together.

    ``observations`` of an `ok` record hold ``rows`` (`seqmoe.simulate.rows.ReplayRow.as_dict`, by policy, link and
    residency), ``links`` (experts per layer by the name that the cell gives, None for any number), ``predictor``
    (``kind``, ``minutes``, where it is ``from``, ``file`` and ``digest``; empty without one) and ``traces`` as of a
    `PredictionRecord`.
    """

    cell: ReplayCell

    def __post_init__(self) -> None:
        StudyRecord.__post_init__(self)
        lacking = [name for name in ("rows", "links", "predictor") if name not in self.observations]
        if self.status.kind == OK and lacking:
            raise ValueError(f"status is ok, but observations lack {', '.join(lacking)}")


KINDS: dict[str, type[StudyRecord]] = {STUDY: PredictionRecord, REPLAY: ReplayRecord}


def to_line(record: StudyRecord) -> str:
    """The record as one line without its newline; raises ``ValueError`` for a NaN or an infinity in it."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, separators=(",", ":"))


def from_line(line: str, where: str) -> StudyRecord:
    """Read one line; ``where`` prefixes the `InputError` of anything that is not a study's record."""
    table = table_of(line, where)
    if "study" not in table:
        raise InputError(f"{where}: key 'study' is missing: not the record of a study")
    kind = table["study"]
    if kind not in KINDS:
        raise InputError(f"{where}: study = {kind!r}; {nearest(str(kind), KINDS)}")
    require_schema(table, SCHEMA, where)
    return build(KINDS[kind], table, where)


def from_any_line(line: str, where: str) -> Record | StudyRecord:
    """Read one line of whatever kind of record."""
    return from_line(line, where) if "study" in table_of(line, where) else from_json(line, where)


STUDIES: Codec[StudyRecord] = Codec(to_line, from_line)
ANY: Codec[Any] = Codec(str, from_any_line)


def latest_of_cells(records: Iterable[StudyRecord]) -> list[StudyRecord]:
    """The last record of every cell and set of traces, in the order of first writing; a failure hides no result."""
    found: dict[tuple[str, str], StudyRecord] = {}
    for record in records:
        identity = (record.cell_key, record.digest)
        before = found.get(identity)
        if record.status.ok or before is None or not before.status.ok:
            found[identity] = record
    return list(found.values())
