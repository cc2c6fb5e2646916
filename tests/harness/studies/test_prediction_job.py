"""What a child process computes of a cell, held to the same things done by hand."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from study_samples import write_traces

from seqmoe.harness.studies import job
from seqmoe.harness.studies.future_use import captured, discounted_use, future_use
from seqmoe.harness.studies.prediction import describe, progress
from seqmoe.harness.studies.prediction_job import STRIDE, TEST_SHARE, compute, cost
from seqmoe.harness.studies.shuffled import shuffled
from seqmoe.predictor.evaluation import Evaluation, evaluate, recall
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.previous import fit
from seqmoe.spec.errors import InputError
from seqmoe.spec.prediction import Options, PredictionCell
from seqmoe.spec.trace import RequestTrace
from seqmoe.traces.source import load_traces
from seqmoe.traces.split import split


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return write_traces(tmp_path_factory.mktemp("traces") / "store", sequences=20)


@pytest.fixture
def computed(traces, tmp_path):
    def run(cell: PredictionCell):
        told: list[dict] = []
        request = {"study": "prediction", "cell": dataclasses.asdict(cell), "source": str(traces),
                   "work": str(tmp_path / "work"), "keep": str(tmp_path / "kept" / "x.safetensors")}  # fmt: skip
        request = json.loads(json.dumps(request))
        return compute(request, told.append), told, tmp_path / "kept" / "x.safetensors"

    return run


def cell(predictor, **changes) -> PredictionCell:
    return PredictionCell("small", "predictors", predictor, "store", **changes)


def test_a_predictor_that_counts_is_fitted_to_one_part_and_judged_on_the_other(traces, computed) -> None:
    observations, _, kept = computed(cell("previous"))
    train, test = split(load_traces(traces), TEST_SHARE)
    by_hand = evaluate(fit(train), test, stride=STRIDE)
    assert Evaluation.from_dict(json.loads(json.dumps(observations["evaluation"]))) == by_hand
    assert observations["traces"] == {"train": 18, "test": 2}
    assert observations["cost"]["rollout_us"] > 0 and observations["cost"]["bytes"] == kept.stat().st_size
    assert "future_use" not in observations
    assert describe(observations).startswith(f"recall {recall(by_hand, 3):.3f}, Seq-8 ")


@pytest.mark.parametrize("options", [Options(), Options(ordered=False, ranges=1, hidden=32, blocks=1)])
def test_a_trained_predictor_comes_with_its_learning_curve_its_cost_and_its_head(computed, options) -> None:
    observations, told, kept = computed(cell("mamba2", minutes=0.02, options=options))
    assert observations["training"]["curve"] and observations["cost"]["parameters"] > 0
    assert observations["cost"]["rollout_us"] > observations["cost"]["one_step_us"] > 0
    assert 0 < observations["future_use"]["direct"] <= 1 and 0 < observations["future_use"]["rollout"] <= 1
    assert load_predictor(kept).layers == 3
    words = [progress(event) for event in told]
    assert any("min" in text for text in words) and words[-1] == "timing"
    json.dumps(observations, allow_nan=False)


def test_what_the_traces_lack_is_said_and_ends_no_process(traces, tmp_path) -> None:
    events: list[dict] = []
    request = {"study": "prediction", "cell": dataclasses.asdict(cell("early_router")), "source": str(traces),
               "work": str(tmp_path), "keep": str(tmp_path / "x.safetensors")}  # fmt: skip
    job.answer(request, events.append)
    assert events[-1]["event"] == "error" and events[-1]["kind"] == "unsupported" and "early" in events[-1]["reason"]


def test_shuffled_sequences_hold_the_same_steps_in_another_order(traces) -> None:
    before = load_traces(traces)
    after = shuffled(before, seed=1)
    again = shuffled(before, seed=1)
    for index in (0, 7, -1):
        one, other = before.requests[index], after.requests[index]
        assert not np.array_equal(one.experts, other.experts)
        assert sorted(map(bytes, one.experts)) == sorted(map(bytes, other.experts))
        assert np.array_equal(other.experts, again.requests[index].experts)
    assert len(after.requests[2:4]) == 2


def test_captured_use_is_that_of_a_brute_force() -> None:
    rng = np.random.default_rng(0)
    active = (rng.random((8, 3, 6)) < 0.3).astype(np.float32)
    use = discounted_use(active, 0.8)
    by_hand = sum(0.2 * 0.8**step * active[step] for step in range(8))
    assert np.allclose(use, by_hand)
    score = rng.random((3, 6))
    got, most = captured(score, use, 2)
    expected = sum(use[layer][sorted(range(6), key=lambda e: -score[layer][e])[:2]].sum() for layer in range(3))
    best = sum(sorted(use[layer])[-2:][0] + sorted(use[layer])[-1] for layer in range(3))
    assert got == pytest.approx(expected) and most == pytest.approx(best)
    assert captured(use, use, 2)[0] == pytest.approx(most)


def test_an_evaluation_that_counted_nothing_says_so(traces) -> None:
    stored = load_traces(traces)
    first = dataclasses.replace(stored, requests=(one_step(stored.requests[0]),))
    assert describe({"evaluation": evaluate(fit(stored), first).as_dict()}) == "nothing to count"


def one_step(request: RequestTrace) -> RequestTrace:
    return RequestTrace(request.experts[:1], request.phase[:1])


def test_requests_without_steps_cost_nothing_and_are_passed_over(traces) -> None:
    stored = load_traces(traces)
    empty = RequestTrace(np.zeros((0, stored.layers, stored.top_k), np.int16), np.zeros(0, np.uint8))
    nothing = dataclasses.replace(stored, requests=(empty,))
    with pytest.raises(InputError, match="no test sequence has any steps"):
        cost(fit(stored), nothing)

    class Direct:
        def use_sequence(self, activation, stride):
            raise AssertionError("asked about a request without steps")

    assert future_use(Direct(), nothing, 7) is None
