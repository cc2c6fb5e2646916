"""How far simulated bars are from the printed ones: by system, fitted and held out apart, and the order of systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from seqmoe.simulate.calibrate.figure6 import TTFT, Point, points
from seqmoe.simulate.calibrate.fit import is_input
from seqmoe.simulate.timeline.cell import Simulator
from seqmoe.spec.calibration import Calibration
from seqmoe.spec.paths import Home

# Bars that differ by less than this have no order: the paper prints one decimal and no intervals.
TIE = 0.02


@dataclass(frozen=True, slots=True)
class Judged:
    """A bar, the simulated value, and whether the bar was an input."""

    point: Point
    simulated: float
    fitted: bool

    @property
    def printed(self) -> float:
        """The paper's value."""
        return self.point.printed

    @property
    def error(self) -> float:
        """Relative error, signed."""
        return self.simulated / self.printed - 1


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of one system in one kind of bars, as absolute values: how many, median and worst, and the mean bias."""

    system: str
    kind: str
    fitted: bool
    bars: int
    median: float
    worst: float
    bias: float


@dataclass(frozen=True, slots=True)
class Order:
    """Cells (bars that share panel, model and x) in which all systems are in the printed order; and pairs of systems.

    Pairs of which both are inputs, and cells that have no other, are left out.
    """

    cells: int
    cells_right: int
    pairs: int
    pairs_right: int


def judge(home: Home, calibration: Calibration, seed: int = 0, chosen: Sequence[Point] | None = None) -> list[Judged]:
    """Simulate every bar of figure 6, or the ``chosen`` ones."""
    simulator = Simulator(home, calibration, seed)
    every = points(home) if chosen is None else chosen
    return [Judged(point, point.value(simulator), is_input(calibration, point)) for point in every]


def summaries(judged: Iterable[Judged]) -> list[Summary]:
    """By kind of bar, held out or fitted, and system; ``all`` are all that compete, full load left out."""
    groups: dict[tuple[str, bool, str], list[float]] = {}
    for one in judged:
        kind = "ttft" if one.point.bar.panel == TTFT else "decode"
        for system in (one.point.bar.system, *(() if one.point.system == "full" else ("all",))):
            groups.setdefault((kind, one.fitted, system), []).append(one.error)
    return [
        Summary(system, kind, fitted, len(errors), float(np.median(np.abs(errors))), float(np.abs(errors).max()),
                float(np.mean(errors)))
        for (kind, fitted, system), errors in sorted(groups.items())
    ]  # fmt: skip


def order(judged: Iterable[Judged], kind: str) -> Order:
    """Whether systems stand in the printed order, cell by cell, ties left out."""
    cells: dict[tuple[str, str, float], list[Judged]] = {}
    for one in judged:
        bar = one.point.bar
        if (bar.panel == TTFT) == (kind == "ttft"):
            cells.setdefault((bar.panel, bar.model, bar.x), []).append(one)
    counts = [0, 0, 0, 0]
    for members in cells.values():
        right = [_agrees(a, b) for a, b in combinations(members, 2) if not (a.fitted and b.fitted) and not _tied(a, b)]
        if right:
            counts[0] += 1
            counts[1] += all(right)
            counts[2] += len(right)
            counts[3] += sum(right)
    return Order(*counts)


def _tied(one: Judged, other: Judged) -> bool:
    return abs(one.printed / other.printed - 1) <= TIE


def _agrees(one: Judged, other: Judged) -> bool:
    return (one.printed < other.printed) == (one.simulated < other.simulated)
