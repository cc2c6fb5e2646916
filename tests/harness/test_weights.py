"""The digest of a record's weights changes when, and only when, what decides its answers does."""

from __future__ import annotations

import pytest
from harness_samples import MODEL, cell, write_predictor

import seqmoe.harness.models
from seqmoe.harness.weights import Weights


@pytest.fixture
def checkpoint(home):
    (home.work / "checkpoint" / "model.safetensors").write_bytes(b"weights")
    write_predictor(home.work / "checkpoint", b"predictor")
    return home.work / "checkpoint"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_the_model_is_known_by_its_content(home, checkpoint, name) -> None:
    first = Weights(home).of(cell())
    (checkpoint / "card.json").write_text("a new card changes no answer")
    assert Weights(home).of(cell()) == first and len(first["model"]) == 64
    with (checkpoint / name).open("ab") as stream:
        stream.write(b" ")
    assert Weights(home).of(cell())["model"] != first["model"]


def test_the_predictor_counts_for_the_system_that_has_one(home, checkpoint) -> None:
    ours, lru = Weights(home).of(cell(system="seqmoe")), Weights(home).of(cell(system="lru"))
    theirs = Weights(home).of(cell(system="Rival"))
    assert ours["model"] == lru["model"] == theirs["model"]
    assert ours["predictor"] and lru["predictor"] is None and theirs["predictor"] is None
    write_predictor(checkpoint, b"fitted anew")
    assert Weights(home).of(cell(system="seqmoe"))["predictor"] != ours["predictor"]


def test_the_profile_counts_for_the_systems_that_read_one(home, checkpoint) -> None:
    assert Weights(home).of(cell(system="popularity"))["profile"] is None
    write_predictor(checkpoint, b"counted", "popularity")
    first = {name: Weights(home).of(cell(system=name)) for name in ("popularity", "seqmoe", "seqmoe_learned", "lru")}
    assert first["popularity"]["profile"] and "profile" not in first["lru"]
    write_predictor(checkpoint, b"counted anew", "popularity")
    for name, before in first.items():
        after = Weights(home).of(cell(system=name))
        changed = {key for key in after if after[key] != before[key]}
        assert changed == (set() if name == "lru" else {"profile"})


def test_a_sweep_reads_every_model_once(home, checkpoint) -> None:
    weights = Weights(home)
    first = weights.of(cell(system="lru"))
    (checkpoint / "model.safetensors").write_bytes(b"written in the middle of the sweep")
    assert weights.of(cell(system="full", residency=1.0)) == first


def test_a_snapshot_of_the_hub_is_known_by_its_commit_and_not_read(home, tmp_path, monkeypatch) -> None:
    text = MODEL.replace('path = "{path}"', 'hub_id = "nobody/nothing"').replace("{{", "{").replace("}}", "}")
    (home.suites / "models" / "tiny.toml").write_text(text)
    assert Weights(home).of(cell(system="seqmoe")) == {"model": None, "predictor": None, "profile": None}
    snapshot = tmp_path / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr(
        seqmoe.harness.models, "try_to_load_from_cache", lambda hub_id, name: str(snapshot / "config.json")
    )
    assert Weights(home).of(cell())["model"] == "0123abcd"
