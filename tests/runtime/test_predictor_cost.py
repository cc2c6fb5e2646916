"""What a predictor's matrices alone take: less than the predictor, and nothing for one without matrices."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import seqmoe
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.previous import Previous
from seqmoe.runtime.predictor_cost import arithmetic_seconds

SHIPPED = Path(seqmoe.__file__).parent / "reference" / "checkpoint" / "predictor" / "mamba2.safetensors"


def test_the_arithmetic_is_a_part_of_the_predictors_time() -> None:
    predictor = load_predictor(SHIPPED)
    activation = np.full((predictor.layers, predictor.experts), 1 / predictor.experts, dtype=np.float32)
    times = []
    for _ in range(10):
        begun = time.perf_counter()
        for first, last in predictor.ranges:
            predictor.observe(activation, first, last)
            predictor.forecast(first, last, 8)
        times.append(time.perf_counter() - begun)
    arithmetic = arithmetic_seconds(predictor, 8)
    assert arithmetic is not None and 0 < arithmetic < float(np.median(times))


def test_a_predictor_without_networks_has_none() -> None:
    assert arithmetic_seconds(Previous(2, 4, 1), 8) is None
    assert arithmetic_seconds(None, 8) is None
