"""Protects the offline profile: one file of popularity and learned score, made from traces, read with its checks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from seqmoe.__main__ import main
from seqmoe.predictor.first_order import fit
from seqmoe.predictor.kinds import load_predictor
from seqmoe.runtime.profile import make_profile, profile_for, read_profile, write_profile
from seqmoe.runtime.retention import Offline
from seqmoe.simulate.policies.learned import FEATURES
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import system
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet

GEOMETRY = Geometry(layers=2, experts=6, top_k=2)


@pytest.fixture
def traces() -> TraceSet:
    rng = np.random.default_rng(0)
    experts = rng.random((4, 60, 2, 6)).argsort(-1)[..., :2].astype(np.int16)
    phase = np.full(60, DECODE, dtype=np.uint8)
    return TraceSet("tiny", 2, 6, 2, tuple(RequestTrace(request, phase) for request in experts))


def test_what_is_written_is_read(traces, tmp_path):
    profile = make_profile(traces, fit(traces))
    path = tmp_path / "popularity.safetensors"
    write_profile(path, profile, 2)
    again = read_profile(path, GEOMETRY)
    assert np.array_equal(again.popularity, profile.popularity)
    assert again.popularity.sum(1) == pytest.approx(2)
    assert np.array_equal(again.weights, profile.weights)
    assert again.weights.shape == (len(FEATURES),)
    # The same file is a popularity predictor.
    assert load_predictor(path).forecast(0, 1, 0).probability[0] == pytest.approx(profile.popularity[:1])


def test_a_plain_popularity_predictor_is_a_profile_without_a_score(traces, tmp_path):
    path = tmp_path / "popularity.safetensors"
    write_profile(path, make_profile(traces), 2)
    assert read_profile(path, GEOMETRY).weights is None
    assert profile_for(system("seqmoe"), path, GEOMETRY).popularity is not None
    with pytest.raises(InputError, match="needs a profile with a fitted score"):
        profile_for(system("seqmoe_learned"), path, GEOMETRY)


def test_other_files_are_refused_by_name(traces, tmp_path):
    fit(traces).save(tmp_path / "first_order")
    with pytest.raises(InputError, match="first_order: a predictor of kind 'first_order'"):
        read_profile(tmp_path / "first_order", GEOMETRY)
    write_profile(tmp_path / "other", Offline(np.ones((3, 6), dtype=np.float32)), 2)
    with pytest.raises(InputError, match="other: made for 3 layers of 6 experts"):
        read_profile(tmp_path / "other", GEOMETRY)
    with pytest.raises(InputError, match="absent"):
        read_profile(tmp_path / "absent", GEOMETRY)


def test_the_command_makes_one(tmp_path, monkeypatch, capsys, traces):
    predictor, out = tmp_path / "first_order", tmp_path / "popularity"
    fit(traces).save(predictor)
    monkeypatch.setattr("seqmoe.cli.predictor.traces_of", lambda source: traces)
    command = ["seqmoe", "predictor", "train", "--traces", "x", "--out", str(out), "--score-with", str(predictor)]
    monkeypatch.setattr("sys.argv", [*command, "--kind", "popularity", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["training"]["requests"] == 4
    assert read_profile(out, GEOMETRY).weights is not None
    monkeypatch.setattr("sys.argv", [*command, "--kind", "previous"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
