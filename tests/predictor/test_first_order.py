"""Protects the first-order predictor: its statistics by hand, its roll-out, its file."""

from __future__ import annotations

import numpy as np
import pytest

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
    predictor.save(tmp_path / "p.npz")
    again = FirstOrder.load(tmp_path / "p.npz")
    for each in (predictor, again):
        each.observe(_active(1), 0, 1)
    assert again.forecast(0, 1, 2).probability == pytest.approx(predictor.forecast(0, 1, 2).probability, abs=1e-3)


def test_wrong_files_are_refused(tmp_path):
    (tmp_path / "p.npz").write_text("no archive")
    objects = np.array([{}, None], dtype=object)
    np.savez(tmp_path / "objects.npz", schema=1, transition=objects, top_k=1, recent=0, momentum=0)
    np.savez(tmp_path / "other.npz", a=1)
    whole = tmp_path / "whole.npz"
    fit(_cycle(300)).save(whole)
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:-40])
    (tmp_path / "empty.npz").touch()
    with (tmp_path / "array.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    for name in ("p", "objects", "other", "cut", "empty", "array"):
        with pytest.raises(InputError, match=rf"{name}\.npz: not a first-order predictor") as caught:
            FirstOrder.load(tmp_path / f"{name}.npz")
        assert "allow_pickle" not in str(caught.value)
    with pytest.raises(InputError, match="no such predictor file"):
        FirstOrder.load(tmp_path / "absent.npz")
    with pytest.raises(InputError, match="needs a predictor"):
        predictor_for(system("seqmoe"), None)
