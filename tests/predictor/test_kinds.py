"""Protects the way from traces to a predictor and through its file, for every kind that only counts."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from predictor_samples import random_request, sample_traces, trace_set

from seqmoe.predictor.base import SequenceContext
from seqmoe.predictor.container import read_container, write_container
from seqmoe.predictor.kinds import KINDS, TRAINED, check_kind, load_predictor
from seqmoe.predictor.load import predictor_for
from seqmoe.predictor.making import make_predictor
from seqmoe.predictor.psi import activations
from seqmoe.predictor.training import TrainingOptions, train_predictor
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import system
from seqmoe.traces.source import digest

COUNTED = [kind for kind in KINDS if kind not in TRAINED]


def _traces():
    rng = np.random.default_rng(0)
    early = rng.permuted(np.tile(np.arange(8), (20, 4, 1)), axis=-1)[..., :6].astype(np.int16)
    return trace_set(*(random_request(rng, 20, early=early) for _ in range(3)))


@pytest.mark.parametrize("kind", COUNTED)
def test_fitted_saved_and_loaded_it_forecasts_the_same(kind, tmp_path):
    traces = _traces()
    predictor, record = make_predictor(kind, traces, seed=3)
    assert record["traces"] == digest(traces) and (record["requests"], record["trace_tokens"]) == (3, 60)
    predictor.save(tmp_path / "p", record)
    about, _ = read_container(tmp_path / "p")
    assert (about["kind"], about["training"]["seed"]) == (kind, 3)
    assert about["geometry"] == {"layers": 4, "experts": 8, "top_k": 2} and about["ranges"] == [[0, 2], [2, 4]]
    again = load_predictor(tmp_path / "p")
    assert type(again) is type(predictor)
    activation, context = activations(traces.requests[0], 8), SequenceContext.of(traces.requests[0])
    one, two = (each.forecast_sequence(activation, 2, 3, context)[1] for each in (predictor, again))
    assert two == pytest.approx(one, abs=2e-3)
    # A probability of being active: in [0, 1], and top_k in all (less for what an early router's list leaves out).
    assert (one >= 0).all() and (one <= 1 + 1e-6).all()
    if kind != "early_router":
        assert one.sum(-1) == pytest.approx(np.full(one.shape[:-1], 2), abs=0.02)


def test_every_kind_that_counts_can_be_fitted_and_restored():
    for kind in COUNTED:
        found = importlib.import_module(f"seqmoe.predictor.{kind}")
        assert callable(found.fit) and callable(found.restore) and kind == found.KIND


def test_wrong_kinds_and_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="did you mean 'first_order'"):
        check_kind("first-order")
    about = {"geometry": {"layers": 2, "experts": 4, "top_k": 1}, "ranges": [[0, 2]]}
    write_container(tmp_path / "p", "oracle", {}, about)
    with pytest.raises(InputError, match="kind 'oracle', which this version does not know"):
        load_predictor(tmp_path / "p")
    write_container(tmp_path / "p", "first_order", {"other": np.zeros(1)}, about)
    with pytest.raises(InputError, match="not a whole predictor"):
        load_predictor(tmp_path / "p")
    write_container(tmp_path / "p", "popularity", {"frequency": np.zeros((3, 4), dtype=np.float32)}, about)
    with pytest.raises(InputError, match="do not fit the geometry"):
        load_predictor(tmp_path / "p")


def test_a_running_system_takes_any_kind_but_the_early_router(tmp_path):
    traces = _traces()
    for kind in COUNTED:
        make_predictor(kind, traces)[0].save(tmp_path / kind)
    for kind in ("first_order", "previous", "popularity"):
        assert predictor_for(system("seqmoe"), tmp_path / kind).layers == 4
    assert predictor_for(system("lru"), None) is None
    with pytest.raises(InputError, match="for evaluations"):
        predictor_for(system("seqmoe"), tmp_path / "early_router")


def test_a_running_system_refuses_what_was_trained_on_raw_logits(tmp_path):
    options = TrainingOptions("mamba2", tokens=1, hidden=32, psi=False)
    train_predictor(_traces(), _traces(), options)[0].save(tmp_path / "p")
    with pytest.raises(InputError, match="Psi off"):
        predictor_for(system("seqmoe"), tmp_path / "p")


def test_traces_without_a_step_teach_nothing():
    traces = sample_traces()
    empty = replace(
        traces.requests[0], experts=np.zeros((0, 4, 2), np.int16), phase=np.zeros(0, np.uint8), weights=None
    )
    for requests in ((), (empty,)):
        with pytest.raises(InputError, match="no steps"):
            make_predictor("popularity", replace(traces, requests=requests))
