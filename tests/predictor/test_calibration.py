"""Protects the calibration error: zero where probabilities are true, and the known gap where they are not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqmoe.predictor.calibration import Calibration, CalibrationCounter, ece, reliability


def _counted(confidence, outcome, parts=1):
    counter = CalibrationCounter()
    for some, came in zip(np.array_split(confidence, parts), np.array_split(outcome, parts), strict=True):
        counter.add(some, came)
    return counter.result()


def test_true_probabilities_have_no_error_and_shifted_ones_the_shift():
    rng = np.random.default_rng(0)
    truth = rng.random(400_000).astype(np.float32) * 0.8
    outcome = rng.random(len(truth)) < truth
    honest = _counted(truth, outcome)
    assert ece(honest) < 0.005
    for point in reliability(honest):
        assert point.confidence == pytest.approx(point.frequency, abs=0.02)
    assert ece(_counted(truth + 0.15, outcome)) == pytest.approx(0.15, abs=0.005)


def test_bins_against_a_loop_and_in_parts():
    rng = np.random.default_rng(1)
    confidence = np.concatenate([rng.random(500), [0, 1, 1.2, -0.1, 1 / 3]]).astype(np.float32)
    outcome = rng.random(len(confidence)) < 0.4
    counted = _counted(confidence, outcome)
    bins = [[] for _ in range(15)]
    for value, came in zip(confidence.clip(0, 1), outcome, strict=True):
        bins[min(int(value * np.float32(15)), 14)].append((value, came))
    assert list(counted.count) == [len(members) for members in bins]
    assert list(counted.outcome) == [sum(came for _, came in members) for members in bins]
    by_hand = sum(abs(sum(value - came for value, came in members)) for members in bins) / len(confidence)
    assert ece(counted) == pytest.approx(by_hand, abs=1e-6)
    parts = _counted(confidence, outcome, parts=7)
    assert parts.count == counted.count and parts.confidence == pytest.approx(counted.confidence)


def test_nothing_counted_is_no_number():
    empty = CalibrationCounter().result()
    assert math.isnan(ece(empty)) and reliability(empty) == []
    with pytest.raises(ValueError, match="differ"):
        Calibration((1,), (0.5,), ())
