"""Protects layers that follow from the token: found only where they are, certain once the token is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from predictor_samples import random_request, trace_set

from seqmoe.predictor import first_order
from seqmoe.predictor.base import SequenceContext, step_by_step
from seqmoe.predictor.evaluation import evaluate, recall
from seqmoe.predictor.hashed import HashTable, find_hash_table, kept_layers, without_layers
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.making import make_predictor
from seqmoe.predictor.psi import activations
from seqmoe.predictor.with_hashed import WithHashed
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING

VOCABULARY, HASHED = 20, (0, 2)


def _traces(seed=0, requests=4, steps=60, hashed=HASHED):
    """Four layers, of which ``hashed`` take their experts from a table by token, in any order."""
    rng = np.random.default_rng(seed)
    table = np.argsort(np.random.default_rng(99).random((VOCABULARY, 4, 8)))[..., :2]
    found = []
    for _ in range(requests):
        tokens = rng.integers(0, VOCABULARY, steps).astype(np.int32)
        request = random_request(rng, steps, token_ids=tokens)
        for layer in hashed:
            request.experts[:, layer] = rng.permuted(table[tokens, layer], axis=-1)
        found.append(request)
    return trace_set(*found)


def test_hashed_layers_are_found_by_their_table():
    traces = _traces()
    table = find_hash_table(traces)
    assert table.layers == HASHED and table.tokens.tolist() == list(range(VOCABULARY))
    known, experts = table.find(np.array([5, 99], dtype=np.int32))
    assert known.tolist() == [True, False]
    request = traces.requests[0]
    for step in np.flatnonzero(request.token_ids == 5):
        assert np.array_equal(np.sort(request.experts[step][list(HASHED)], axis=-1), experts[0])


def test_no_table_without_evidence():
    assert find_hash_table(_traces(hashed=())) is None
    assert find_hash_table(_traces(requests=1, steps=50)) is None  # too few repeats
    traces = _traces()
    assert find_hash_table(replace(traces, requests=tuple(replace(r, token_ids=None) for r in traces.requests))) is None
    assert find_hash_table(_traces(hashed=(0, 1, 2, 3))) is None


def test_steps_that_lack_a_layer_say_nothing():
    traces = _traces()
    traces.requests[0].experts[:10, 0] = MISSING
    assert find_hash_table(traces).layers == HASHED


def test_the_rest_of_the_traces_is_a_smaller_model():
    traces = _traces()
    rest = without_layers(traces, HASHED)
    assert (rest.layers, len(rest.requests)) == (2, 4)
    assert np.array_equal(rest.requests[1].experts, traces.requests[1].experts[:, [1, 3]])
    assert np.array_equal(rest.requests[1].weights, traces.requests[1].weights[:, [1, 3]])
    assert len(rest.requests[1:3]) == 2 and kept_layers(5, (0, 3)).tolist() == [1, 2, 4]


def test_hashed_layers_are_certain_and_the_others_are_as_without_them():
    train, test = _traces(seed=0), _traces(seed=1, requests=2)
    predictor, record = make_predictor("first_order", train)
    assert isinstance(predictor, WithHashed) and record["hashed_layers"] == list(HASHED)
    assert predictor.ranges == ((0, 2), (2, 4)) and predictor.inner.layers == 2
    request = test.requests[0]
    context = SequenceContext.of(request)
    _, chance = predictor.forecast_sequence(activations(request, 8), 2, 1, context)
    active = activations(request, 8) > 0
    assert np.array_equal(chance[:-1, 0][:, HASHED] == 1, active[1:][:, HASHED])
    inner = first_order.fit(without_layers(train, HASHED))
    _, expected = inner.forecast_sequence(activations(request, 8)[:, [1, 3]], 2)
    assert np.array_equal(chance[:, :, [1, 3]], expected)
    # Two of four layers are right always; the other two hardly better than chance.
    assert recall(evaluate(predictor, test), 0) == pytest.approx(0.5 + 0.5 * 2 / 8, abs=0.06)


def test_online_it_is_certain_once_it_knows_the_token():
    train = _traces()
    predictor, _ = make_predictor("first_order", train)
    request = train.requests[0]
    activation = activations(request, 8)
    _, slow = step_by_step(predictor, activation, 1)
    _, unknown = predictor.forecast_sequence(activation, 1)
    assert slow == pytest.approx(unknown, abs=1e-6)
    assert slow.sum(-1) == pytest.approx(np.full(slow.shape[:-1], 2), abs=1e-3)
    predictor.know(int(request.token_ids[1]))
    assert np.array_equal(predictor.forecast(0, 2, 1).probability[0, 0] == 1, activation[1, 0] > 0)
    assert not (predictor.forecast(0, 2, 1).probability[1, 0] == 1).any()
    predictor.observe(activation[1], 0, 2)
    assert not (predictor.forecast(0, 2, 1).probability[0, 0] == 1).any()


def test_future_use_is_forecast_for_all_layers():
    train = _traces()
    predictor, record = make_predictor("mamba2", train, options={"tokens": 500, "hidden": 32})
    assert record["hashed_layers"] == list(HASHED) and record["parameters"] > 0
    [first, last] = predictor.ranges[0]
    predictor.observe(activations(train.requests[0], 8)[0], first, last)
    forecast = predictor.forecast(first, last, 1)
    inner = predictor.inner.forecast(*predictor.inner.ranges[0], 1)
    assert np.array_equal(forecast.use[1], inner.use[0])
    assert forecast.use[0].sum() == pytest.approx(2) and (forecast.use[0] == predictor.table.frequency(8)[0]).all()


def test_one_file_holds_both(tmp_path):
    train = _traces()
    predictor, record = make_predictor("first_order", train)
    predictor.save(tmp_path / "p", record)
    again = load_predictor(tmp_path / "p")
    assert isinstance(again, WithHashed) and again.ranges == predictor.ranges
    context = SequenceContext.of(train.requests[0])
    activation = activations(train.requests[0], 8)
    one, two = (each.forecast_sequence(activation, 1, 1, context)[1] for each in (predictor, again))
    assert two == pytest.approx(one, abs=1e-3)


def test_a_table_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a table of"):
        HashTable((0,), np.array([2, 1], dtype=np.int32), np.zeros((2, 1, 2), dtype=np.int16))
    predictor = first_order.fit(without_layers(_traces(), HASHED))
    one = HashTable((7,), np.array([1], dtype=np.int32), np.zeros((1, 1, 2), dtype=np.int16))
    with pytest.raises(ValueError, match="do not fit"):
        WithHashed(predictor, one)
    with pytest.raises(InputError, match="no such predictor file"):
        load_predictor(tmp_path / "p")
