"""A whole comparison: two names become sides, sides become pairs of cells, and each pair a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.comparing.judging import METRICS, VERDICTS, Judged, Metric, judge
from seqmoe.harness.comparing.pairs import counted_cells, pair_cells
from seqmoe.harness.comparing.sides import find_sides
from seqmoe.harness.studies.kinds import find_study
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import LEAST_THRESHOLD, load_suite


@dataclass(frozen=True, slots=True)
class Compared:
    """``cells`` in the order of a's records; ``remarks`` say what could not be compared, and what to keep in mind.

    Verdicts speak of ``b`` beside ``a``.
    """

    a: str
    b: str
    kind: str
    metric: Metric
    cells: tuple[Judged, ...]
    remarks: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How often each verdict was given."""
        found = Counter(cell.verdict for cell in self.cells)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def regressions(self) -> int:
        """Cells that are slower than their suite allows, or that failed on b alone."""
        return sum(cell.regression for cell in self.cells)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "a": self.a,
            "b": self.b,
            "kind": self.kind,
            "metric": self.metric.name,
            "counts": self.counts,
            "regressions": self.regressions,
            "remarks": list(self.remarks),
            "cells": [cell.as_dict() for cell in self.cells],
        }


def compare_sides(
    home: Home, a: str, b: str, metric: str = "decode_tok_s", folders: Sequence[Path] | None = None
) -> Compared:
    """Compare ``b`` with ``a``, by names as `seqmoe.harness.comparing.sides.find_sides` reads them.

    ``metric`` is one of `METRICS`. Raises `InputError` for a name that stands for no records, for two sides that have
    no cell in common, and for a suite whose threshold is declared wrongly.
    """
    if metric not in METRICS:
        raise InputError(f"--metric {metric}: unknown; {nearest(metric, METRICS)}")
    first, second = find_sides(home, (a, b), folders)
    found = pair_cells(first, second)
    if not found.pairs:
        why = "; ".join(found.remarks)
        raise InputError(f"{a} and {b} have no cell in common{f' ({why})' if why else ''}; run the same suite on both")
    allowed: dict[str, float] = {}
    judged, empty = [], 0
    for pair in found.pairs:
        suite = pair.a[0].cell.suite
        if suite not in allowed:
            allowed[suite] = threshold_of(home, suite)
        verdict = judge(pair, METRICS[metric], allowed[suite])
        if verdict is None:
            empty += 1
        else:
            judged.append(verdict)
    remarks = (*found.remarks, *([f"without a figure on either side: {counted_cells(empty)}"] if empty else []))
    return Compared(a, b, first.kind, METRICS[metric], tuple(judged), remarks)


def threshold_of(home: Home, suite: str) -> float:
    """The share that a suite of suites/ lets its cells be slower; the contract's 5 % for a suite of another place."""
    path = home.suites / f"{suite}.toml"
    if not path.is_file() or find_study(home, path) is not None:
        return LEAST_THRESHOLD
    return load_suite(path).regression.threshold
