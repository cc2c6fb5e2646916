"""What may be said of repeats: the median with its interval, and when the word *faster* is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

LEAST_REPEATS = 8
SIGNIFICANCE = 0.01
LEAST_RATIO = 1.05
_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """Median of ``count`` repeats with its 95 % bootstrap interval ``low``..``high``."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether ``a`` may be called faster than ``b``; ``reason`` says which condition is not met, empty if all are."""

    faster: bool
    ratio: float
    p_value: float
    reason: str


def summarize(values: Sequence[float], seed: int = 0) -> Summary:
    """Median and seeded percentile bootstrap of it; the same values and seed give the same interval.

    A single value has no spread: its interval is itself. Raises ``ValueError`` for none.
    """
    if not values:
        raise ValueError("no values to summarize")
    sample = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(sample), size=(_RESAMPLES, len(sample)))
    low, high = np.percentile(np.median(sample[picks], axis=1), [2.5, 97.5])
    return Summary(float(np.median(sample)), float(low), float(high), len(sample))


def ratio_of_medians(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Summary:
    """Median of ``a`` over that of ``b`` with its seeded bootstrap interval, both sides drawn anew each time.

    ``count`` is the smaller of the two. Raises ``ValueError`` for a side without values.
    """
    if not a or not b:
        raise ValueError("no values to take a ratio of")
    generator = np.random.default_rng(seed)
    medians = []
    for side in (np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)):
        picks = generator.integers(0, len(side), size=(_RESAMPLES, len(side)))
        medians.append(np.median(side[picks], axis=1))
    low, high = np.percentile(medians[0] / medians[1], [2.5, 97.5])
    return Summary(float(np.median(a) / np.median(b)), float(low), float(high), min(len(a), len(b)))


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Exact two-sided p-value of the Mann-Whitney test, ties included: twice the smaller of the one-sided ones."""
    return min(1.0, 2 * min(_p_greater(a, b), _p_greater(b, a)))


def _p_greater(a: Sequence[float], b: Sequence[float]) -> float:
    """Share of all ways to deal the pooled values in which the first hand ranks at least as high as ``a`` does.

    SciPy's exact method knows no ties, so the deals are counted here: ``ways[n, s]`` is the number of hands of ``n``
    values whose doubled mid-ranks, which are whole numbers, add up to ``s``.
    """
    ranks = (2 * rankdata([*a, *b])).astype(np.int64)
    ways = np.zeros((len(a) + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    hands = ways[len(a)]
    return float(hands[ranks[: len(a)].sum() :].sum() / hands.sum())


def compare(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Whether throughput ``a`` may be called faster than ``b``, one value per repeat.

    It takes 8 interleaved repeats of each, exact p < 0.01, and a ratio of the medians above 1.05.
    """
    if not a or not b:
        return Comparison(False, float("nan"), float("nan"), "a side has no repeats")
    ratio, p_value = float(np.median(a) / np.median(b)), min(1.0, 2 * _p_greater(a, b))
    if min(len(a), len(b)) < LEAST_REPEATS:
        fewest = min(len(a), len(b))
        reason = f"{fewest} {'repeat' if fewest == 1 else 'repeats'}; {LEAST_REPEATS} of both are needed"
    elif p_value >= SIGNIFICANCE:
        reason = f"p = {p_value:.3g}; below {SIGNIFICANCE} is needed"
    elif ratio <= LEAST_RATIO:
        reason = f"ratio {ratio:.3f}; above {LEAST_RATIO} is needed"
    else:
        reason = ""
    return Comparison(not reason, ratio, p_value, reason)
