"""What the paper prints, as transcribed in results/paper: the bars of figure 6 and the claims of its text."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of figure 6. ``x`` is a residency or a batch size, ``value`` tok/s or seconds, None for a cross."""

    panel: str
    model: str
    hardware: str
    axis: str
    x: float
    system: str
    value: float | None


def figure6_bars(home: Home) -> tuple[Bar, ...]:
    """All bars and crosses, in the order of the file."""
    rows = _rows(home.paper / "fig6.csv")
    return tuple(
        Bar(
            row["panel"],
            row["model"],
            row["hardware"],
            row["axis"],
            float(row["x"]),
            row["system"],
            float(row["value"]) if row["supported"] == "1" else None,
        )
        for row in rows
    )


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A row of table 1: ``moe_parameters`` and ``total_parameters`` in billions, experts of a layer."""

    model: str
    moe_parameters: int
    total_parameters: int
    active_experts: int
    experts: int


def table1_rows(home: Home) -> tuple[ModelRow, ...]:
    """Table 1 as printed."""
    rows = _rows(home.paper / "table1.csv")
    return tuple(ModelRow(row.pop("model"), **{name: int(value) for name, value in row.items()}) for row in rows)


def claim_rows(home: Home) -> list[dict[str, str]]:
    """The rows of claims.csv as they stand."""
    return _rows(home.paper / "claims.csv")


def claim_values(home: Home) -> dict[str, float]:
    """The values of the claims that have one, by their ids."""
    return {row["id"]: float(row["value"]) for row in claim_rows(home) if row["value"]}


def claim_value(claims: dict[str, float], name: str) -> float:
    """One claim's value; an unknown one is an `InputError`."""
    if name not in claims:
        raise InputError(f"claims.csv has no value for {name!r}; {nearest(name, claims)}")
    return claims[name]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
