"""Where the records of a page were made: each distinct fingerprint once, as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.record import Record
from seqmoe.harness.studies.record import StudyRecord

AnyRecord = Record | StudyRecord
_LOAD = "load_average"
# What differs from cell to cell, or from one run to the next; the rest of a fingerprint lasts.
_PASSING = (_LOAD, "device", "weights")
_DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Environment:
    """One fingerprint as (name, value) lines, and how many records were made in it."""

    host: str
    records: int
    first: str
    last: str
    lines: tuple[tuple[str, str], ...]


def environments(records: Iterable[AnyRecord]) -> list[Environment]:
    """The distinct fingerprints of the records, the most recent first."""
    groups: dict[str, list[AnyRecord]] = {}
    for record in records:
        groups.setdefault(repr(_lasting(record)), []).append(record)
    found = []
    for group in groups.values():
        started = sorted(record.started[:16].replace("T", " ") for record in group)
        lasting = _lasting(group[0])
        lines = [
            *_lines({key: value for key, value in lasting.items() if key != "host"}),
            *_ran_on(group),
            *_loads(group),
        ]
        host = str(lasting.get("host", "unknown host"))
        found.append(Environment(host, len(group), started[0], started[-1], tuple(lines)))
    return sorted(found, key=lambda environment: environment.last, reverse=True)


def _lasting(record: AnyRecord) -> dict[str, Any]:
    """The fingerprint without what differs from one run to the next."""
    return {key: value for key, value in record.environment.items() if key not in _PASSING}


def _ran_on(records: Sequence[AnyRecord]) -> list[tuple[str, str]]:
    """The devices and, by their digests, the weights that were used."""
    devices = sorted({str(record.environment["device"]) for record in records if "device" in record.environment})
    lines = [("device", ", ".join(devices))] if devices else []
    for kind in ("model", "predictor"):
        served = [record for record in records if isinstance(record, Record)]
        pairs = ((record.cell.model, record.environment.get("weights", {}).get(kind)) for record in served)
        for model, digest in dict.fromkeys(pairs):
            if digest:
                lines.append((f"{'weights' if kind == 'model' else kind} of {model}", str(digest)[:_DIGEST_DIGITS]))
    return lines


def _loads(records: Sequence[AnyRecord]) -> list[tuple[str, str]]:
    loads = [float(record.environment[_LOAD]) for record in records if _LOAD in record.environment]
    return [("load average", f"{min(loads):g} to {max(loads):g} while these were recorded")] if loads else []


def _lines(value: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """A nested fingerprint as flat lines; what is a table inside a table goes by both names."""
    for key, inner in value.items():
        name = f"{above} {key}".strip().replace("_", " ")
        if isinstance(inner, dict):
            yield from _lines(inner, name)
        elif isinstance(inner, list) and inner and all(isinstance(item, dict) for item in inner):
            for index, item in enumerate(inner):
                yield from _lines(item, f"{name} {index}")
        elif isinstance(inner, list):
            yield name, ", ".join(map(str, inner)) or "none"
        elif isinstance(inner, bool):
            yield name, "yes" if inner else "no"
        else:
            yield name, str(inner)
