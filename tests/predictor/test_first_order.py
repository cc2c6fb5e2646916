"""Protects the first-order predictor: its statistics by hand, its roll-out, its file."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.predictor.base import step_by_step
from seqmoe.predictor.container import write_container
from seqmoe.predictor.first_order import FirstOrder, fit
from seqmoe.predictor.load import predictor_for
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import system
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet


def _cycle(steps: int) -> TraceSet:
    """One layer, top-1 of 4: 0 -> 1 -> 2 -> 0 ..., expert 3 never."""
    experts = (np.arange(steps) % 3).astype(np.int16).reshape(steps, 1, 1)
    return TraceSet("cycle", 1, 4, 1, (RequestTrace(experts, np.full(steps, DECODE, dtype=np.uint8)),))


def _active(expert: int) -> np.ndarray:
    activation = np.zeros((1, 4), dtype=np.float32)
    activation[0, expert] = 1
    return activation


def test_a_deterministic_cycle_is_forecast_and_rolled_out():
    predictor = fit(_cycle(3000))
    predictor.observe(_active(0), 0, 1)
    forecast = predictor.forecast(0, 1, lookahead=3).probability
    assert forecast.shape == (4, 1, 4)
    assert forecast[:, 0].argmax(-1).tolist() == [1, 2, 0, 1]
    assert forecast[:, 0].max(-1) == pytest.approx(1, abs=0.01)
    assert forecast.sum(-1) == pytest.approx(np.ones((4, 1)), abs=0.01)


def test_pairs_do_not_cross_requests():
    one = RequestTrace(np.array([[[0]], [[1]]], dtype=np.int16), np.full(2, DECODE, dtype=np.uint8))
    two = RequestTrace(np.array([[[2]], [[3]]], dtype=np.int16), np.full(2, DECODE, dtype=np.uint8))
    predictor = fit(TraceSet("t", 1, 4, 1, (one, two)))
    predictor.observe(_active(1), 0, 1)
    # Expert 1 was never followed by anything: what is left is popularity, the same for all four.
    assert predictor.forecast(0, 1, 0).probability[0, 0] == pytest.approx(np.full(4, 0.25), abs=1e-3)


def test_running_average_follows_the_request():
    predictor = FirstOrder(np.full((1, 4, 4), 0.25, dtype=np.float32), top_k=1, recent=0.5, momentum=0.5)
    for _ in range(20):
        predictor.observe(_active(3), 0, 1)
    assert predictor.forecast(0, 1, 0).probability[0, 0] == pytest.approx([0.125, 0.125, 0.125, 0.625], abs=1e-3)
    predictor.reset()
    predictor.observe(_active(3), 0, 1)
    assert predictor.forecast(0, 1, 0).probability[0, 0, 3] < 0.5


def test_file_round_trip(tmp_path):
    predictor = fit(_cycle(300))
    predictor.save(tmp_path / "p.safetensors")
    again = FirstOrder.load(tmp_path / "p.safetensors")
    for each in (predictor, again):
        each.observe(_active(1), 0, 1)
    assert again.forecast(0, 1, 2).probability == pytest.approx(predictor.forecast(0, 1, 2).probability, abs=1e-3)


def test_a_step_without_data_changes_nothing():
    predictor = fit(_cycle(300))
    predictor.observe(_active(1), 0, 1)
    before = predictor.forecast(0, 1, 1).probability
    predictor.observe(np.zeros((1, 4), dtype=np.float32), 0, 1)
    assert np.array_equal(predictor.forecast(0, 1, 1).probability, before)


@pytest.mark.parametrize(("recent", "stride"), [(0.0, 1), (0.5, 1), (0.5, 3)])
def test_a_sequence_at_once_is_the_sequence_step_by_step(recent, stride):
    rng = np.random.default_rng(0)
    transition = rng.random((5, 6, 6), dtype=np.float32)
    predictor = FirstOrder(transition / transition.sum(-1, keepdims=True) * 2, 2, recent, momentum=0.7)
    activation = np.where(rng.random((20, 5, 6)) < 0.4, rng.random((20, 5, 6)), 0).astype(np.float32)
    activation[0, 1] = activation[5:8, 3] = 0  # missing layers, one of them from the start
    one, slow = step_by_step(predictor, activation, 3, stride)
    two, fast = predictor.forecast_sequence(activation, 3, stride)
    assert np.array_equal(one, two) and fast.shape == (len(one), 4, 5, 6)
    assert fast == pytest.approx(slow, abs=1e-6)


def test_another_kind_and_no_file_are_refused(tmp_path):
    about = {"geometry": {"layers": 1, "experts": 2, "top_k": 1}, "ranges": [[0, 1]]}
    write_container(tmp_path / "p", "previous", {}, about)
    with pytest.raises(InputError, match="of kind 'previous'"):
        FirstOrder.load(tmp_path / "p")
    with pytest.raises(InputError, match="no such predictor file"):
        FirstOrder.load(tmp_path / "absent")
    with pytest.raises(InputError, match="needs a predictor"):
        predictor_for(system("seqmoe"), None)
