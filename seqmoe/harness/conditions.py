"""Under which conditions a record was made: only records of the same device and weights may stand together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.record import Record
from seqmoe.harness.weights import has_predictor, has_profile
from seqmoe.spec.suite import REPLAY

CONDITIONS = ("device", "weights")


@dataclass(frozen=True, slots=True)
class Comparable:
    """Records that may be set against each other, and sentences on what was left out."""

    records: tuple[Record, ...]
    remarks: tuple[str, ...]


def model_digest(environment: Mapping[str, Any]) -> str | None:
    """Digest of the model's weights; None if they were not there, or in a record that does not tell."""
    digest: str | None = environment.get("weights", {}).get("model")
    return digest


def since_change(past: Sequence[Record], environment: Mapping[str, Any]) -> list[Record]:
    """The last records of a cell, back to the one that was made under other conditions than ``environment``."""
    found: list[Record] = []
    for record in reversed(past):
        if any(record.environment.get(name) != environment.get(name) for name in CONDITIONS):
            break
        found.insert(0, record)
    return found


def newest_only(records: Iterable[Record]) -> Comparable:
    """Leave out what ran on other weights than the newest record of its host and model, or on another device.

    A predictor and a profile count for the systems that use one, the device for each cell by itself. What was recorded
    while the weights were not there (``not_installed``) holds no numbers: it is kept, and decides nothing.
    """
    everything = list(records)
    newest: dict[tuple[object, ...], object] = {}
    for record in sorted(everything, key=lambda record: record.started):
        newest.update(_conditions(record))
    old_weights: dict[str, int] = {}
    other_device, kept = 0, []
    for record in everything:
        differing = {key[0] for key, value in _conditions(record).items() if newest[key] != value}
        if differing & {"model", "predictor", "profile"}:
            old_weights[record.cell.model] = old_weights.get(record.cell.model, 0) + 1
        elif differing:
            other_device += 1
        else:
            kept.append(record)
    remarks = [
        f"{_records(count)} left out: made with earlier weights of {name}" for name, count in old_weights.items()
    ]
    if other_device:
        remarks.append(f"{_records(other_device)} left out: made on another device than the newest of the same cell")
    return Comparable(tuple(kept), tuple(remarks))


def _conditions(record: Record) -> dict[tuple[object, ...], object]:
    """What must agree: by what it is and for whom, its value."""
    host, cell = record.environment.get("host"), record.cell
    weights = record.environment.get("weights", {})
    found: dict[tuple[object, ...], object] = {
        ("device", host, record.cell_key): record.environment.get("device"),
    }
    if "model" in weights and weights["model"] is None:
        return found
    # Replayed routing has traces in a model's place, and a predictor for each kind.
    whose = (host, cell.model, cell.routing, cell.dataset if cell.routing == REPLAY else "", cell.weights, cell.layers)
    found["model", *whose] = weights.get("model")
    if has_predictor(cell):
        found["predictor", *whose, cell.predictor] = weights.get("predictor")
    if has_profile(cell):
        found["profile", *whose] = weights.get("profile")
    return found


def _records(count: int) -> str:
    return f"{count} older record{' is' if count == 1 else 's are'}"
