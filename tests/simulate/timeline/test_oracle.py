"""Protects the noisy oracle: it has the recall that it is told to have, and its probabilities mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.simulate.timeline.oracle import ROWS, Recall, fit_oracle
from seqmoe.spec.geometry import Geometry
from seqmoe.traces.synthesis.process import RoutingProcess
from seqmoe.traces.synthesis.requests import SyntheticRequests

GEOMETRY = Geometry(4, 64, 4)
PROCESS = RoutingProcess(1.0, 0.2, 1.5, 0.8)
RECALL = Recall(0.90, 0.04)


@pytest.fixture(scope="module")
def told():
    """An oracle that was fitted on one request, and the forecasts and the truth of another."""
    requests = SyntheticRequests(GEOMETRY, PROCESS, 2, 0, 250)
    oracle = fit_oracle(PROCESS, requests.latents(0), GEOMETRY.top_k, RECALL, np.random.default_rng(1))
    latents = requests.latents(1)
    active = np.zeros((250, GEOMETRY.layers, GEOMETRY.experts), dtype=bool)
    np.put_along_axis(active, requests.request(1, latents).experts.astype(np.int64), True, axis=-1)
    return oracle, oracle.forecast(latents, np.random.default_rng(2)), active


def recall(forecast: np.ndarray, active: np.ndarray, row: int) -> float:
    chance, truth = forecast[: -row - 1, row], active[row + 1 :]
    best = np.argsort(-chance, axis=-1, kind="stable")[..., : GEOMETRY.top_k + 3]
    return float(np.take_along_axis(truth, best, axis=-1).sum() / truth.sum())


def test_recall_of_another_request_is_as_told(told) -> None:
    _, forecast, active = told
    assert recall(forecast, active, 0) == pytest.approx(0.90, abs=0.02)
    eight = [recall(forecast, active, row) for row in range(8)]
    assert np.mean(eight) == pytest.approx(0.86, abs=0.02)
    assert recall(forecast, active, 8) < recall(forecast, active, 0)


def test_recall_falls_in_a_line_whose_mean_over_eight_steps_is_as_told() -> None:
    rows = [RECALL.of_row(row) for row in range(8)]
    assert rows[0] == 0.90 and np.mean(rows) == pytest.approx(0.86)


def test_probabilities_are_calibrated(told) -> None:
    _, forecast, active = told
    for row in (0, 4, 8):
        chance, truth = forecast[: -row - 1, row].ravel(), active[row + 1 :].ravel()
        place = np.minimum((chance * 10).astype(int), 9)
        for bin_ in np.unique(place):
            inside = place == bin_
            if inside.sum() > 300:
                assert chance[inside].mean() == pytest.approx(truth[inside].mean(), abs=0.09)


def test_nothing_is_known_before_the_first_forecast_and_past_the_end(told) -> None:
    oracle, forecast, _ = told
    assert forecast.shape == (250, ROWS, GEOMETRY.layers, GEOMETRY.experts)
    assert not forecast[-1].any() and not forecast[-9:, 8].any()
    latents = SyntheticRequests(GEOMETRY, PROCESS, 2, 0, 250).latents(1)
    late = oracle.forecast(latents, np.random.default_rng(2), first=200)
    assert not late[:200].any() and late[200].any()


def test_a_recall_that_persistence_already_exceeds_is_refused() -> None:
    latents = SyntheticRequests(GEOMETRY, PROCESS, 1, 0, 100).latents(0)
    with pytest.raises(ValueError, match="persistence alone"):
        fit_oracle(PROCESS, latents, GEOMETRY.top_k, Recall(0.05, 0.0), np.random.default_rng(1))
