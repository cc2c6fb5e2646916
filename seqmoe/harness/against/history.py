"""What benchmarks have taken on this machine, revision by revision: one CSV per host, beside its records.

``results/<host>/benchmarks.csv`` has the columns `COLUMNS`: the revision (its hash, ``+`` behind it if there were
uncommitted changes), when (UTC, ISO 8601), the benchmark (file and test), the median seconds of a call, and the
machine. Figures of different machines are never set against each other, nor is a stored one ever compared with.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from seqmoe.spec.errors import InputError

COLUMNS = ("revision", "time", "benchmark", "median", "machine")


@dataclass(frozen=True, slots=True)
class Point:
    """One row. ``median`` is in seconds."""

    revision: str
    time: str
    benchmark: str
    median: float
    machine: str


def history_path(results: Path, host: str) -> Path:
    """Where a host's history is."""
    return results / host / "benchmarks.csv"


def append(path: Path, points: Iterable[Point]) -> None:
    """Add rows; a file that is not there begins with the columns' names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        if new:
            writer.writerow(COLUMNS)
        writer.writerows(astuple(point) for point in points)


def read(path: Path) -> list[Point]:
    """All rows in the order of writing; no file holds none. An `InputError` names the line that is none."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise InputError(f"{path}: columns {rows.fieldnames}: expected {', '.join(COLUMNS)}; move the file away")
        points = []
        for row in rows:
            try:
                points.append(Point(**row | {"median": float(row["median"])}))  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise InputError(f"{path}:{rows.line_num}: {row}: not a row of {', '.join(COLUMNS)}") from None
    return points


def points_of(report: dict[str, Any], revision: str, machine: str) -> list[Point]:
    """The rows of one report of pytest-benchmark (its JSON)."""
    when = str(report["datetime"])
    return [
        Point(revision, when, one["fullname"].rpartition("/")[2], float(one["stats"]["median"]), machine)
        for one in report["benchmarks"]
    ]


def read_report(path: Path) -> dict[str, Any]:
    """A file that pytest-benchmark has saved."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a report of pytest-benchmark: {error}") from None
