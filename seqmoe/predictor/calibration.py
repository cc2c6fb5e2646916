"""Whether a forecast's probability is one: the scheduler adds confidences up, so that 0.7 must mean seven in ten."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15


@dataclass(frozen=True, slots=True)
class Calibration:
    """Sums over forecasts by equal bins of confidence: how many, their confidences, how many came true."""

    count: tuple[int, ...]
    confidence: tuple[float, ...]
    outcome: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.count) == len(self.confidence) == len(self.outcome):
            raise ValueError("calibration: count, confidence and outcome differ in their number of bins")


class CalibrationCounter:
    """Adds forecasts up, batch by batch."""

    def __init__(self, bins: int = BINS) -> None:
        self._count = np.zeros(bins, dtype=np.int64)
        self._confidence = np.zeros(bins)
        self._outcome = np.zeros(bins, dtype=np.int64)

    def add(self, probability: NDArray[np.float32], outcome: NDArray[np.bool_]) -> None:
        """Forecasts and what came of them, of one shape. Probabilities outside of [0, 1] count as its ends."""
        bins = len(self._count)
        confidence = np.clip(probability.ravel(), 0, 1)
        place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
        self._count += np.bincount(place, minlength=bins)
        self._confidence += np.bincount(place, weights=confidence, minlength=bins)
        self._outcome += np.bincount(place[outcome.ravel()], minlength=bins)

    def result(self) -> Calibration:
        """The sums so far."""
        return Calibration(
            tuple(map(int, self._count)), tuple(map(float, self._confidence)), tuple(map(int, self._outcome))
        )


@dataclass(frozen=True, slots=True)
class ReliabilityPoint:
    """One bin that is not empty: mean confidence, the share that came true, and the number of forecasts."""

    confidence: float
    frequency: float
    count: int


def reliability(calibration: Calibration) -> list[ReliabilityPoint]:
    """The reliability curve, ascending in confidence."""
    bins = zip(calibration.count, calibration.confidence, calibration.outcome, strict=True)
    return [
        ReliabilityPoint(confidence / count, outcome / count, count) for count, confidence, outcome in bins if count
    ]


def ece(calibration: Calibration) -> float:
    """Expected calibration error: mean over forecasts of |confidence - frequency| of their bin. NaN for no forecast."""
    total = sum(calibration.count)
    gaps = (abs(point.confidence - point.frequency) * point.count for point in reliability(calibration))
    return sum(gaps) / total if total else float("nan")
