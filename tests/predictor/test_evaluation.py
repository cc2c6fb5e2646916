"""Protects recall: against counting by hand, against the published figures of real traces, and what it leaves out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from predictor_samples import Fixed, brute_force, random_request, sample_traces, trace_set

import seqmoe.predictor.evaluation as module
from seqmoe.predictor import first_order, previous
from seqmoe.predictor.evaluation import (
    Evaluation,
    Missing,
    ece,
    evaluate,
    interval,
    misses_interval,
    recall,
    recall_by_step,
    recall_on_misses,
    top_m_ranks,
)
from seqmoe.predictor.scores import MissScore, SequenceScore
from seqmoe.simulate.replay import replay_traces
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL
from seqmoe.traces.importers import import_traces
from seqmoe.traces.split import split, subset


def _table(rng, steps, rows=4, layers=4, experts=8):
    """Forecasts with many ties."""
    return rng.integers(0, 4, (steps, rows, layers, experts)).astype(np.float32) / 4


@pytest.mark.parametrize("decode_only", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_counts_equal_a_brute_force(seed, decode_only):
    rng = np.random.default_rng(seed)
    request = random_request(rng, 17, prefill=6, missing=0.15)
    table = _table(rng, 17)
    result = evaluate(Fixed(table), trace_set(request), lookahead=3, decode_only=decode_only, warmup=2)
    counted = (request.phase == DECODE) | (not decode_only)
    counted &= np.cumsum(counted) > 2
    seq1, rollout = brute_force(table, request, 2, 3, counted)
    score = result.sequences[0]
    assert [score.activations, *score.hits] == seq1.tolist()
    assert list(result.rollout_by_step.activations) == rollout[:, 0].tolist()
    assert [list(row) for row in result.rollout_by_step.hits] == rollout[:, 1:].tolist()
    assert [score.rollout_activations, *score.rollout_hits] == rollout.sum(0).tolist()
    assert recall(result, 1) == seq1[2] / seq1[0]
    assert recall(result, 4, "seq8") == rollout[:, 5].sum() / rollout[:, 0].sum()
    assert recall_by_step(result, 0) == (rollout[:, 1] / rollout[:, 0]).tolist()


def test_of_equal_probabilities_the_lower_expert_comes_first():
    chance = np.array([[0.0, 0.5, 0.2, 0.5, 0.0]], dtype=np.float32)
    assert top_m_ranks(chance, np.arange(5)[None]).tolist() == [[3, 0, 2, 1, 4]]


def test_a_forecast_of_nothing_is_not_right_about_everything():
    request = random_request(np.random.default_rng(0), 200)
    result = evaluate(Fixed(np.zeros((200, 8, 4, 8), dtype=np.float32)), trace_set(request))
    assert recall(result, 0) == pytest.approx(2 / 8, abs=0.04)
    table = np.full((200, 8, 4, 8), np.nan, dtype=np.float32)
    with pytest.raises(ValueError, match="no number"):
        evaluate(Fixed(table), trace_set(request))


def test_a_stride_samples_the_same_forecasts():
    rng = np.random.default_rng(0)
    request = random_request(rng, 20)
    table = _table(rng, 20)
    coarse = evaluate(Fixed(table), trace_set(request), lookahead=3, stride=3)
    blank = np.zeros(20, dtype=bool)
    total = np.zeros(6, dtype=int)
    for after in range(0, 19, 3):
        only = blank.copy()
        only[after + 1] = True
        total += brute_force(table, request, 2, 0, only)[0]
    assert [coarse.sequences[0].activations, *coarse.sequences[0].hits] == total.tolist()


def test_misses_are_those_of_the_replay():
    traces = sample_traces(missing=0.0)
    residencies = (0.15, 0.25, 0.35, 0.45)
    phase = [replace(request, phase=np.full_like(request.phase, DECODE)) for request in traces.requests]
    traces = trace_set(*phase)
    result = evaluate(previous.fit(traces), traces, residencies=residencies)
    rows = replay_traces(traces, ["lru"], list(residencies))
    # The first step of a request has no forecast, and misses everything.
    first = sum(request.experts[0].size for request in traces.requests)
    assert [score.needed for score in result.misses.values()] == [row.loads - first for row in rows]
    # A pool that holds a token's experts of every layer never misses what the previous token used.
    assert recall_on_misses(result, 0.35, 0) == 0 < recall_on_misses(result, 0.35, 3)
    assert isinstance(recall_on_misses(result, 0.4, 0), Missing)


def test_recall_on_misses_has_an_interval_over_sequences():
    counts = [(10, *(hits,) * 5) for hits in (2, 4, 6, 8)]
    score = MissScore(40, (20,) * 5, tuple(counts))
    traces = sample_traces(missing=0.0)
    counted = evaluate(previous.fit(traces), traces, residencies=(0.15,))
    of_each = np.array(counted.misses["0.15"].sequences)
    assert of_each.sum(0).tolist() == [counted.misses["0.15"].needed, *counted.misses["0.15"].hits]
    result = replace(counted, misses={"0.35": score})
    low, high = misses_interval(result, 0.35, 3)
    assert 0.2 <= low < recall_on_misses(result, 0.35, 3) < high <= 0.8
    assert Evaluation.from_dict(json.loads(json.dumps(result.as_dict()))) == result
    earlier = replace(result, misses={"0.35": MissScore(40, (20,) * 5)})
    assert "earlier version" in misses_interval(earlier, 0.35, 3).reason
    assert isinstance(misses_interval(result, 0.4, 3), Missing)


def test_long_requests_are_forecast_in_two_passes_with_the_same_next_steps(monkeypatch):
    rng = np.random.default_rng(0)
    request = random_request(rng, 40)
    table = _table(rng, 40)
    whole = evaluate(Fixed(table), trace_set(request), lookahead=3)
    monkeypatch.setattr(module, "_MOST_BYTES", -(-table.nbytes // 3))
    predictor = Fixed(table)
    sparse = evaluate(predictor, trace_set(request), lookahead=3)
    assert predictor.asked == [(40, 0, 1), (40, 3, 3)]
    assert sparse.sequences[0].hits == whole.sequences[0].hits and sparse.calibration == whole.calibration
    assert 0 < sparse.sequences[0].rollout_activations < whole.sequences[0].rollout_activations


def test_what_cannot_be_told_is_missing_with_a_reason():
    traces = trace_set(random_request(np.random.default_rng(0), 5))
    result = evaluate(previous.fit(traces), traces)
    assert isinstance(recall(result, 0), float)
    assert recall(result, 0, "long") == Missing("no sequence has more than 4,096 tokens")
    assert "long enough" in recall(result, 0, "seq8").reason and isinstance(recall_by_step(result, 0), Missing)
    single = trace_set(random_request(np.random.default_rng(0), 1))
    nothing = evaluate(previous.fit(single), single)
    assert isinstance(recall(nothing, 0), Missing) and isinstance(interval(nothing, 0), Missing)
    long = replace(result, sequences=(replace(result.sequences[0], length=4097), *result.sequences))
    assert recall(long, 0, "long") == recall(result, 0)
    with pytest.raises(ValueError, match="m_offset"):
        recall(result, 5)


def test_the_interval_is_over_sequences():
    rng = np.random.default_rng(0)
    traces = trace_set(random_request(rng, 30))
    one = evaluate(previous.fit(traces), traces)
    assert interval(one, 0) == (recall(one, 0), recall(one, 0))
    chance = rng.normal(0.5, 0.1, 100)
    scores = tuple(SequenceScore(11, 1000, (int(1000 * share),) * 5, 0, (0,) * 5) for share in chance)
    many = replace(one, sequences=scores)
    low, high = interval(many, 2)
    assert low < recall(many, 2) < high
    # The mean of 100 sequences with a standard deviation of 0.1.
    assert high - low == pytest.approx(2 * 1.96 * np.std(chance) / 10, rel=0.1)
    assert interval(many, 2) == (low, high) != interval(many, 2, seed=1)


def test_json_and_back():
    traces = sample_traces()
    result = evaluate(previous.fit(traces), traces, lookahead=2)
    values = json.loads(json.dumps(result.as_dict()))
    assert Evaluation.from_dict(values) == result
    assert ece(Evaluation.from_dict(values).calibration) == ece(result.calibration)
    for change, message in (
        ({"schema": 2}, "schema 2"),
        ({"sequence": []}, "did you mean 'sequences'"),
        ({"sequences": [{"length": 3}]}, "not what an evaluation wrote"),
    ):
        with pytest.raises(InputError, match=message):
            Evaluation.from_dict(values | change)
    del values["misses"]
    with pytest.raises(InputError, match="misses"):
        Evaluation.from_dict(values)


def test_wrong_geometry_and_settings_are_refused():
    traces = sample_traces()
    other = trace_set(random_request(np.random.default_rng(0), 5, layers=3))
    with pytest.raises(InputError, match="4 layers of 8 experts, but the traces of random have 3 of 8"):
        evaluate(previous.fit(traces), other)
    with pytest.raises(InputError, match=r"residency = 0\.01"):
        evaluate(previous.fit(traces), traces, residencies=[0.01])
    with pytest.raises(InputError, match="stride = 0"):
        evaluate(previous.fit(traces), traces, stride=0)


def test_a_request_without_steps_counts_as_a_sequence_of_none():
    rng = np.random.default_rng(0)
    one, empty = random_request(rng, 12), random_request(rng, 0)
    alone, beside = (evaluate(previous.fit(trace_set(one)), trace_set(*all_)) for all_ in ((one,), (empty, one)))
    assert [score.length for score in beside.sequences] == [0, 12]
    assert (beside.sequences[1], beside.misses) == (alone.sequences[0], alone.misses)


def test_residencies_without_room_for_a_token_are_left_out():
    request = random_request(np.random.default_rng(0), 12, layers=2, experts=4, k=4)
    result = evaluate(previous.fit(trace_set(request, experts=4)), trace_set(request, experts=4))
    assert list(result.misses) == ["0.45"]


def test_forecasts_that_are_no_numbers_are_refused():
    request = random_request(np.random.default_rng(0), 6)
    with pytest.raises(InputError, match="no number"):
        evaluate(Fixed(np.full((6, 8, 4, 8), np.nan, np.float32)), trace_set(request))


def test_prefill_warms_up_but_does_not_count():
    request = random_request(np.random.default_rng(0), 12, prefill=8)
    result = evaluate(previous.fit(trace_set(request)), trace_set(request), lookahead=1)
    assert result.sequences[0].activations == 4 * 4 * 2
    silent = replace(request, phase=np.full(12, PREFILL, dtype=np.uint8))
    assert evaluate(previous.fit(trace_set(request)), trace_set(silent)).sequences[0].activations == 0


def test_missing_layers_count_in_neither():
    request = random_request(np.random.default_rng(0), 30)
    gone = request.experts.copy()
    gone[5:, 2] = MISSING
    less = replace(request, experts=gone)
    result = evaluate(previous.fit(trace_set(less)), trace_set(less), lookahead=1)
    # 29 forecast steps of 3 layers, and 4 of the fourth, top-2.
    assert result.sequences[0].activations == 2 * (29 * 3 + 4)
    assert sum(result.calibration.count) == 8 * (29 * 3 + 4)


def test_recall_of_the_cheap_rivals_on_real_routing(real_data):
    traces = import_traces(real_data / "traces" / "gpt-oss-20b.npz")
    train, test = split(traces, 0.1, seed=0)
    test = subset(test, range(0, len(test.requests), 2))
    again = evaluate(previous.fit(train), test)
    # Counted from other sequences of the same data set, see the README of the data.
    assert recall(again, 0) == pytest.approx(0.437, abs=0.02)
    chain = evaluate(first_order.fit(train), test)
    assert recall(chain, 0) == pytest.approx(0.461, abs=0.02)
    assert recall(chain, 3) == pytest.approx(0.642, abs=0.02)
    low, high = interval(chain, 0)
    assert low < recall(chain, 0) < high < low + 0.06
    assert recall(chain, 0, "seq8") < recall(chain, 0)
