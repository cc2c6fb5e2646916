"""What a predictor would take in PyTorch: timed beside the running one, and only where that is in the core."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import seqmoe
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.previous import Previous
from seqmoe.runtime.predictor_cost import pytorch_seconds

SHIPPED = Path(seqmoe.__file__).parent / "reference" / "checkpoint" / "predictor" / "mamba2.safetensors"


def test_timing_does_not_disturb_what_runs_and_grows_with_the_rollout() -> None:
    predictor = load_predictor(SHIPPED)
    first, last = predictor.ranges[0]
    activation = np.zeros((predictor.layers, predictor.experts), dtype=np.float32)
    activation[:, :6] = 1 / 6
    predictor.observe(activation, first, last)
    before = predictor.forecast(first, last, 8).probability
    one, many = pytorch_seconds(predictor, 0), pytorch_seconds(predictor, 40)
    assert one is not None and many is not None and 0 < one < many
    assert np.array_equal(predictor.forecast(first, last, 8).probability, before)


def test_without_a_network_in_the_core_there_is_nothing_to_compare() -> None:
    predictor = load_predictor(SHIPPED)
    predictor.networks[1].double()
    assert pytorch_seconds(predictor, 8) is None
    assert pytorch_seconds(Previous(2, 4, 1), 8) is None
    assert pytorch_seconds(None, 8) is None
