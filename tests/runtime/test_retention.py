"""Protects the runtime's retention policies: their scores are those of the offline policies, event by event."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.runtime.retention import Offline
from seqmoe.runtime.retention_kinds import KINDS, retention_of
from seqmoe.simulate.policies import POLICIES
from seqmoe.simulate.policies.base import Foresight, Routing
from seqmoe.simulate.policies.learned import FEATURES
from seqmoe.spec.system import RETENTION

STEPS, LAYERS, EXPERTS, TOP_K, PROMPT = 40, 3, 10, 3, 6
RANGES = ((0, 1), (1, 3))
OFFLINE_NAMES = {"cache_score": "seqmoe_cache_only", "cache_score_next": "seqmoe_next"}


@pytest.fixture
def routing() -> Routing:
    rng = np.random.default_rng(0)
    active = np.zeros((STEPS, LAYERS, EXPERTS), dtype=bool)
    # Two requests together: up to six experts an event.
    chosen = rng.random((STEPS, 2, LAYERS, EXPERTS)).argsort(-1)[..., :TOP_K]
    for request in range(2):
        np.put_along_axis(active, chosen[:, request], True, -1)
    padded = np.zeros((STEPS + 1, 9, LAYERS, EXPERTS), dtype=np.float32)
    padded[1:] = rng.uniform(0.02, 0.9, (STEPS, 9, LAYERS, EXPERTS))
    # The runtime forecasts once for a whole prompt.
    padded[1:PROMPT] = 0
    return Routing(
        active, np.arange(STEPS) >= PROMPT, TOP_K, 0.3, 9, Foresight(padded, RANGES),
        popularity=rng.random((LAYERS, EXPERTS), dtype=np.float32),
        weights=rng.normal(0.2, 0.1, len(FEATURES)).astype(np.float32),
    )  # fmt: skip


def _scores(name: str, routing: Routing, prompt: int):
    """After each event from the last prompt step on, and after each forecast: [(step, layer or range, scores)]."""
    score = np.zeros((LAYERS, EXPERTS), dtype=np.float32)
    policy = retention_of(name, score, Offline(routing.popularity, routing.weights))
    policy.begin_request(0)
    for step in range(max(prompt - 1, 0), STEPS):
        for layer in range(LAYERS):
            if step == prompt - 1:
                policy.prompt(layer, step, routing.active[:prompt, layer])
            else:
                policy.used(layer, step, np.flatnonzero(routing.active[step, layer]).astype(np.int32))
            yield step, layer, layer + 1, False, score[layer : layer + 1].copy()
            for first, last in RANGES:
                if layer == last - 1:
                    policy.forecast(step, first, last, routing.forecasts().probability[step, :, first:last])
                    yield step, first, last, True, score[first:last].copy()


@pytest.mark.parametrize("prompt", [0, PROMPT])
@pytest.mark.parametrize("name", [name for name in RETENTION if name not in ("all", "none")])
def test_scores_equal_the_offline_policies(name, prompt, routing):
    if prompt == 0:
        # Without a prompt, forecasts come from the first step on.
        padded = np.random.default_rng(1).uniform(0.02, 0.9, (STEPS + 1, 9, LAYERS, EXPERTS)).astype(np.float32)
        padded[0] = 0
        counted = np.ones(STEPS, dtype=bool)
        routing = Routing(
            routing.active, counted, TOP_K, 0.3, 9, Foresight(padded, RANGES), routing.popularity, routing.weights
        )
    expected = POLICIES[OFFLINE_NAMES.get(name, name)].score(routing)
    compared = 0
    for step, first, last, forecast, score in _scores(name, routing, prompt):
        wanted = expected.forecast if forecast else expected.used
        if wanted is None:
            continue
        wanted = np.asarray(wanted)[step, first:last]
        if name == "lfu":  # told as places in an order
            score, wanted = score.ravel().argsort(kind="stable"), wanted.ravel().argsort(kind="stable")
            assert score.tolist() == wanted.tolist(), (step, first)
        else:
            np.testing.assert_allclose(score, wanted, rtol=2e-5, atol=2e-5, err_msg=f"step {step}, layer {first}")
        compared += 1
    assert compared >= (STEPS - max(prompt, 1)) * LAYERS


def test_the_order_over_all_layers_is_lfus_too(routing):
    expected = np.asarray(POLICIES["lfu"].score(routing).used)
    score = np.zeros((LAYERS, EXPERTS), dtype=np.float32)
    policy = retention_of("lfu", score, Offline())
    latest = np.zeros_like(score)
    for step in range(STEPS):
        for layer in range(LAYERS):
            policy.used(layer, step, np.flatnonzero(routing.active[step, layer]).astype(np.int32))
            latest[layer] = expected[step, layer]
            assert score.ravel().argsort(kind="stable").tolist() == latest.ravel().argsort(kind="stable").tolist()


def test_lfu_goes_on_when_its_positions_are_used_up():
    score = np.zeros((1, 4), dtype=np.float32)
    policy = retention_of("lfu", score, Offline())
    for step, expert in [(0, 3), (1, 2), (2**18, 1), (2**18 + 1, 0), (2**19, 2)]:
        policy.used(0, step, np.array([expert], dtype=np.int32))
    # Expert 2 was used twice; of the others the last used is the best.
    assert score[0].argsort().tolist() == [3, 1, 0, 2]
    assert np.isfinite(score).all()


def test_recency_stays_exact_over_many_requests():
    score = np.zeros((2, 3), dtype=np.float32)
    policy = retention_of("lru", score, Offline())
    step = 0
    for _ in range(4):
        step += 2**22
        policy.begin_request(step)
        policy.used(0, step, np.array([0], dtype=np.int32))
        policy.used(0, step + 1, np.array([1], dtype=np.int32))
        policy.used(1, step + 1, np.array([2], dtype=np.int32))
        assert score[1, 2] > score[0, 1] > score[0, 0]


@pytest.mark.parametrize(("name", "message"), [("popularity", "popularity"), ("learned", "weights")])
def test_what_is_missing_is_named(name, message):
    with pytest.raises(ValueError, match=f"needs .*{message}"):
        retention_of(name, np.zeros((2, 3), dtype=np.float32), Offline())


@pytest.mark.parametrize("name", ["cache_score", "cache_score_next", "forecast_tail", "learned"])
def test_a_forecast_of_the_next_step_alone_is_enough(name):
    score = np.zeros((2, 3), dtype=np.float32)
    policy = retention_of(name, score, Offline(weights=np.full(len(FEATURES), 0.1, dtype=np.float32)))
    policy.used(0, 0, np.array([1], dtype=np.int32))
    policy.forecast(0, 0, 2, np.array([[[0.1, 0.9, 0.5], [0.2, 0.3, 0.4]]], dtype=np.float32))
    policy.used(0, 1, np.array([2], dtype=np.int32))
    assert np.isfinite(score).all()


def test_every_declared_name_has_a_policy():
    assert {*KINDS, "all"} == set(RETENTION)
