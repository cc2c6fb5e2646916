"""Records of steps that are no cells of a suite: one JSON line each, beside the stores of the host's suites."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.record import Status, require_schema, table_of
from seqmoe.harness.store import Codec
from seqmoe.spec.declared import build

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """One step: ``findings`` are plain JSON, ``environment`` the fingerprint, ``started`` UTC, ``seconds`` wall time.

    Everything in it was measured on the host that ``environment`` tells of.
    """

    schema: int
    step: str
    status: Status
    findings: dict[str, Any]
    environment: dict[str, Any]
    started: str
    seconds: float


def _write(record: CheckRecord) -> str:
    return json.dumps(dataclasses.asdict(record), allow_nan=False)


def _read(line: str, where: str) -> CheckRecord:
    table = table_of(line, where)
    require_schema(table, SCHEMA, where)
    return build(CheckRecord, table, where)


CHECKS = Codec(_write, _read)


def checks_path(results: Path, host: str) -> Path:
    """In a folder of its own: ``results/<host>/*.jsonl`` are the cells of suites."""
    return results / host / "gpu" / "checks.jsonl"
