"""Protects the cheap rivals: what they forecast by hand, and that whole sequences are the same as step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from predictor_samples import random_request, sample_traces, trace_set

from seqmoe.predictor import early_router, popularity, previous
from seqmoe.predictor.base import SequenceContext, halves, positions, step_by_step
from seqmoe.predictor.evaluation import Missing, evaluate, recall, top_m_ranks
from seqmoe.predictor.psi import activations
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, RequestTrace


@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("kind", [previous, popularity])
def test_a_sequence_at_once_is_the_sequence_step_by_step(kind, stride):
    traces = sample_traces(missing=0.3)
    predictor = kind.fit(traces)
    for request in traces.requests:
        activation = activations(request, traces.experts, traces.router)
        one, slow = step_by_step(predictor, activation, 2, stride)
        two, fast = predictor.forecast_sequence(activation, 2, stride)
        assert np.array_equal(one, two) and fast == pytest.approx(slow, abs=1e-6)


def _request(*tokens):
    return RequestTrace(np.array(tokens, dtype=np.int16)[:, None], np.full(len(tokens), DECODE, dtype=np.uint8))


def test_previous_puts_the_last_tokens_experts_first_and_then_the_most_used():
    request = _request([0, 1], [0, 2], [0, 2], [3, 4])
    _, chance = previous.Previous(1, 6, 2).forecast_sequence(activations(request, 6), 1)
    order = np.argsort(-chance[3, 0, 0], kind="stable")
    assert set(order[:2]) == {3, 4} and order[2:].tolist() == [0, 2, 1, 5]
    assert np.array_equal(chance[3, 0], chance[3, 1])
    assert (chance >= 0).all() and (chance <= 1).all()
    assert chance[3, 0, 0].sum() == pytest.approx(2, abs=0.01)


def test_popularity_counts():
    traces = trace_set(_request([0, 1], [0, 2]), _request([0, 1], [MISSING, MISSING]), experts=4)
    frequency = popularity.frequency_of(traces)
    assert frequency[0] == pytest.approx([1, 2 / 3, 1 / 3, 0])
    never = trace_set(_request([MISSING, MISSING]), experts=4)
    assert popularity.frequency_of(never)[0] == pytest.approx([0.5] * 4)


def _early_traces(rng, right=0.7, steps=60):
    """Early choices, best first, of which about ``right`` name an expert that is active."""
    request = random_request(rng, steps)
    early = np.zeros((steps, 4, 6), dtype=np.int16)
    for step, layer in np.ndindex(steps, 4):
        active = request.experts[step, layer].tolist()
        others = rng.permutation([expert for expert in range(8) if expert not in active]).tolist()
        named = [active.pop() if active and rng.random() < right else others.pop() for _ in range(6)]
        early[step, layer] = named
    early[:, 0] = MISSING
    return trace_set(replace(request, early=early))


def test_early_router_is_judged_on_the_step_it_is_in():
    traces = _early_traces(np.random.default_rng(0))
    request = traces.requests[0]
    predictor = early_router.fit(traces)
    result = evaluate(predictor, traces)
    # By hand: layers 1 to 3 of steps 1 on, early choices against experts; layer 0 by popularity.
    frequency = popularity.frequency_of(traces)[0]
    for offset in range(5):
        hits = sum(
            np.isin(request.experts[step, layer], request.early[step, layer, : 2 + offset]).sum()
            for step in range(1, 60)
            for layer in range(1, 4)
        )
        popular = np.argsort(-frequency, kind="stable")[: 2 + offset]
        hits += np.isin(request.experts[1:, 0], popular).sum()
        assert result.sequences[0].hits[offset] == hits
    assert isinstance(recall(result, 0, "seq8"), Missing)


def test_early_routers_confidence_is_its_precision():
    traces = _early_traces(np.random.default_rng(1), steps=2000)
    _, chance = early_router.fit(traces).forecast_sequence(
        activations(traces.requests[0], 8), 0, context=SequenceContext.of(traces.requests[0])
    )
    places = traces.requests[0].early[1:, 1:]
    assert (np.sort(top_m_ranks(chance[:-1, 0, 1:], places), axis=-1) == np.arange(6)).all()
    first = np.take_along_axis(chance[:-1, 0, 1:], places.astype(np.int64), axis=-1)[..., 0]
    assert first.mean() == pytest.approx(0.7, abs=0.03)


def test_early_router_says_what_it_lacks():
    plain = trace_set(random_request(np.random.default_rng(0), 5))
    with pytest.raises(InputError, match="seqmoe trace collect"):
        early_router.fit(plain)
    predictor = early_router.fit(_early_traces(np.random.default_rng(0)))
    with pytest.raises(InputError, match="seqmoe trace collect"):
        evaluate(predictor, plain)
    with pytest.raises(InputError, match="hidden state"):
        predictor.observe(np.zeros((4, 8), dtype=np.float32), 0, 2)
    with pytest.raises(InputError, match="hidden state"):
        predictor.forecast(0, 2, 1)
    narrow = replace(plain.requests[0], early=np.zeros((5, 4, 3), dtype=np.int16))
    with pytest.raises(InputError, match="3 choices per layer"):
        evaluate(predictor, trace_set(narrow))


def test_ranges_and_positions():
    assert [halves(layers) for layers in (1, 2, 5)] == [((0, 1),), ((0, 1), (1, 2)), ((0, 2), (2, 5))]
    assert positions(7, 3).tolist() == [0, 3, 6]
    with pytest.raises(ValueError, match="stride"):
        positions(7, 0)
