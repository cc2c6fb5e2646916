"""Intervals and the word *faster*, held to enumeration by brute force and to the rule of the measurement contract."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from seqmoe.harness.statistics import compare, mann_whitney, ratio_of_medians, summarize

samples = st.lists(st.integers(0, 9), min_size=1, max_size=5)


def enumerated(a, b) -> tuple[float, float]:
    """One-sided p-values (a greater, b greater) over all ways to deal the pooled values into two hands."""

    def wins(left, right):
        return sum((x > y) + 0.5 * (x == y) for x in left for y in right)

    pooled, observed = [*a, *b], wins(a, b)
    deals = list(itertools.combinations(range(len(pooled)), len(a)))
    dealt = [
        wins([pooled[i] for i in hand], [pooled[i] for i in range(len(pooled)) if i not in hand]) for hand in deals
    ]
    return sum(w >= observed for w in dealt) / len(deals), sum(w <= observed for w in dealt) / len(deals)


@given(st.lists(st.floats(0, 100), min_size=16, max_size=24, unique=True), st.integers(5, 11))
def test_p_is_scipys_where_there_are_no_ties(values, cut) -> None:
    a, b = values[:cut], values[cut:]
    assert mann_whitney(a, b) == pytest.approx(scipy.stats.mannwhitneyu(a, b, method="exact").pvalue)
    assert mann_whitney(a, b) == pytest.approx(mann_whitney(b, a))


@given(samples, samples)
def test_p_is_what_enumeration_says_where_there_are_ties(a, b) -> None:
    assert mann_whitney(a, b) == pytest.approx(min(1, 2 * min(enumerated(a, b))))


def test_equal_samples_say_nothing() -> None:
    assert mann_whitney([3.0] * 9, [3.0] * 9) == 1.0


@given(st.lists(st.floats(1, 100), min_size=1, max_size=12), st.integers(0, 3))
def test_the_interval_holds_the_median_and_is_repeatable(values, seed) -> None:
    first = summarize(values, seed)
    assert first == summarize(values, seed)
    assert first.median == pytest.approx(statistics.median(values)) and first.count == len(values)
    assert min(values) <= first.low <= first.median <= first.high <= max(values)


def test_the_interval_covers_the_true_median_about_95_times_in_100() -> None:
    rng = np.random.default_rng(7)
    intervals = [summarize(list(rng.normal(50, 5, size=25))) for _ in range(200)]
    covered = sum(s.low <= 50 <= s.high for s in intervals)
    assert 175 <= covered <= 200


def test_one_value_is_its_own_interval_and_none_is_an_error() -> None:
    only = summarize([4.0])
    assert (only.median, only.low, only.high, only.count) == (4.0, 4.0, 4.0, 1)
    with pytest.raises(ValueError, match="no values"):
        summarize([])


def test_the_ratio_has_an_interval_of_its_own() -> None:
    ratio = ratio_of_medians([20, 22, 21, 19], [10, 11, 10, 9])
    assert ratio == ratio_of_medians([20, 22, 21, 19], [10, 11, 10, 9])
    assert (ratio.median, ratio.count) == (2.05, 4)
    assert 19 / 11 <= ratio.low < ratio.median < ratio.high <= 22 / 9
    with pytest.raises(ValueError, match="no values"):
        ratio_of_medians([], [1.0])


def test_the_ratios_interval_covers_the_true_ratio_about_95_times_in_100() -> None:
    rng = np.random.default_rng(3)
    drawn = [ratio_of_medians(list(rng.normal(60, 3, 15)), list(rng.normal(40, 3, 15))) for _ in range(120)]
    assert 105 <= sum(s.low <= 1.5 <= s.high for s in drawn) <= 120


def spread(center: float, count: int) -> list[float]:
    return [center + 0.01 * index for index in range(count)]


def test_faster_needs_eight_repeats_of_both() -> None:
    assert compare(spread(20, 8), spread(10, 8)).faster
    fewer = compare(spread(20, 8), spread(10, 7))
    assert not fewer.faster and "7 repeats" in fewer.reason
    assert not compare([], spread(10, 8)).faster


def test_faster_needs_more_than_five_percent() -> None:
    assert "ratio" in compare(spread(10.4, 8), spread(10, 8)).reason
    assert compare(spread(10.6, 8), spread(10, 8)).faster


def test_faster_needs_significance_and_the_right_direction() -> None:
    mixed = [10, 30, 11, 29, 12, 28, 13, 27]
    assert "p =" in compare(mixed, [9, 31, 9.5, 14, 12.5, 13.5, 10.5, 15]).reason
    assert not compare(spread(10, 8), spread(20, 8)).faster
    assert not compare(spread(10, 8), spread(10, 8)).faster
