"""Predictors that learn as they go: their counts are those of the request so far, and nothing outlives it."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.predictor.base import step_by_step
from seqmoe.predictor.online import ONLINE, OnlineFirstOrder

LAYERS, EXPERTS, TOP_K = 4, 6, 2


def steps(choices) -> np.ndarray:
    """Activation [steps, layers, experts]: the same experts in every layer of a step."""
    found = np.zeros((len(choices), LAYERS, EXPERTS), dtype=np.float32)
    for step, experts in enumerate(choices):
        found[step][:, list(experts)] = 1 / TOP_K
    return found


@pytest.mark.parametrize("kind", sorted(ONLINE))
def test_every_kind_runs_through_the_protocol_from_the_first_step(kind) -> None:
    predictor = ONLINE[kind](LAYERS, EXPERTS, TOP_K)
    activation = steps([(0, 1), (2, 3), (0, 1)])
    at, rows = step_by_step(predictor, activation, lookahead=3)
    assert at.tolist() == [0, 1, 2] and rows.shape == (3, 4, LAYERS, EXPERTS)
    assert np.isfinite(rows).all() and (rows >= 0).all() and (rows <= 1).all()


def test_it_learns_what_follows_what() -> None:
    predictor = OnlineFirstOrder(LAYERS, EXPERTS, TOP_K)
    activation = steps([(0, 1), (2, 3)] * 12)
    _, rows = predictor.forecast_sequence(activation, lookahead=2)
    after_even, after_odd = rows[20, :, 1], rows[21, :, 1]
    assert set(np.argsort(after_even[0])[-2:]) == {2, 3} and set(np.argsort(after_odd[0])[-2:]) == {0, 1}
    assert set(np.argsort(after_even[1])[-2:]) == {0, 1}, "the rollout alternates as well"


def test_a_forecast_is_the_smoothed_chain_of_the_counts() -> None:
    """Against the transition matrix written out."""
    predictor = OnlineFirstOrder(LAYERS, EXPERTS, TOP_K)
    rng = np.random.default_rng(0)
    chosen = [tuple(rng.choice(EXPERTS, TOP_K, replace=False)) for _ in range(30)]
    activation = steps(chosen)
    _, rows = predictor.forecast_sequence(activation, lookahead=2)
    active = (activation[:, 0] > 0).astype(float)
    popular = (active.sum(0) + 4 * TOP_K / EXPERTS) / (len(active) + 4)
    together, seen = active[:-1].T @ active[1:], active[:-1].sum(0)
    matrix = (together + 2 * popular) / (seen + 2)[:, None]
    average = np.full(EXPERTS, TOP_K / EXPERTS)
    for step in active:
        average = 0.9 * average + 0.1 * step
    share = active[-1] / TOP_K
    for ahead in range(3):
        chance = share @ matrix
        assert rows[-1, ahead, 0] == pytest.approx(np.minimum(0.5 * chance + 0.5 * average, 1), abs=1e-5)
        share = chance / TOP_K


def test_a_request_is_forgotten_with_its_end() -> None:
    predictor = OnlineFirstOrder(LAYERS, EXPERTS, TOP_K)
    first = predictor.forecast_sequence(steps([(0, 1), (2, 3), (0, 5)]), lookahead=1)[1]
    predictor.forecast_sequence(steps([(4, 5)] * 9), lookahead=1)
    assert (predictor.forecast_sequence(steps([(0, 1), (2, 3), (0, 5)]), lookahead=1)[1] == first).all()


def test_a_layer_that_a_step_lacks_changes_nothing() -> None:
    whole, gap = (OnlineFirstOrder(LAYERS, EXPERTS, TOP_K) for _ in range(2))
    activation = steps([(0, 1), (2, 3), (1, 4)])
    for predictor, rows in ((whole, activation), (gap, np.insert(activation, 1, 0, axis=0))):
        for row in rows:
            for first, last in predictor.ranges:
                predictor.observe(row, first, last)
    assert (whole.forecast(0, 2, 2).probability == gap.forecast(0, 2, 2).probability).all()


def test_there_is_nothing_to_save(tmp_path) -> None:
    with pytest.raises(ValueError, match="nothing to keep"):
        OnlineFirstOrder(LAYERS, EXPERTS, TOP_K).save(tmp_path / "file")
