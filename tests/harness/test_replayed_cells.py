"""Replayed cells: their keys, their traces and requests, predictors that never saw them, and one factor for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness_samples import cell, record

from seqmoe.harness import replays as module
from seqmoe.harness.dilations import Dilations
from seqmoe.harness.prompts import Unavailable
from seqmoe.harness.record import Status
from seqmoe.harness.replays import Replays
from seqmoe.predictor.previous import Previous
from seqmoe.spec.errors import InputError
from seqmoe.spec.suite import Block
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet
from seqmoe.traces.source import digest
from seqmoe.traces.split import split
from seqmoe.traces.store import write_store


def traces(count: int, steps: int = 30) -> TraceSet:
    rng = np.random.default_rng(0)
    requests = tuple(
        RequestTrace(
            rng.integers(0, 4, (steps - index % 2 * 10, 2, 1)).astype(np.int16),
            np.full(steps - index % 2 * 10, DECODE, dtype=np.uint8),
            identifier=f"r{index}",
        )
        for index in range(count)
    )
    return TraceSet("m", 2, 4, 1, requests)


def replayed(**changes):
    fields = {"lane": "emulated", "hardware": "card", "routing": "replay", "dataset": "many", "prompts": 2}
    return cell(**(fields | {"system": "seqmoe", "predictor": "previous", "decode_tokens": 25} | changes))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "traces"
    place.mkdir()
    write_store(traces(60), place / "many.store")
    write_store(traces(1), place / "one.store")
    return place


def test_cells_without_the_later_fields_keep_their_keys() -> None:
    plain = cell(system="lru")
    assert replace(plain, routing="model", predictor="", execution="", link="").key == plain.key
    assert len({plain.key, replace(plain, routing="replay").key, replace(plain, predictor="previous").key}) == 3


def test_requests_are_held_out_long_enough_and_the_same_for_every_system(home, folder) -> None:
    found = Replays(home, str(folder))
    chosen, warm_up = found.requests(replayed())
    test = set(split(traces(60), 0.1)[1].requests.indices.tolist())
    assert len(chosen) == 2 and {*chosen, warm_up} <= test and warm_up not in chosen
    assert all(index % 2 == 0 for index in (*chosen, warm_up)), "the others have 20 steps"
    assert found.requests(replayed(system="lru", predictor="", residency=0.5)) == (chosen, warm_up)
    with pytest.raises(InputError, match=r"51 requests of 25 tokens, one .*: .* held-out sequences that long"):
        found.requests(replayed(prompts=50))


def test_a_file_that_holds_no_traces_is_refused_before_anything_runs(home, folder, tmp_path) -> None:
    (tmp_path / "many.txt").write_text("no traces\n")
    (tmp_path / "other").write_bytes(b"")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.savez(tmp_path / "many.npz", x=np.zeros(3))
    (tmp_path / "many.json").write_text("[" * 100_000)
    for name in ("many.txt", "other", "other.npz", "many.npz", "many.json"):
        with pytest.raises(InputError) as caught:
            Replays(home, str(tmp_path / name)).check([replayed()])
        assert f"--traces {tmp_path / name}: " in str(caught.value)
        assert "`seqmoe trace import`" in str(caught.value)
    with pytest.raises(InputError, match=r"one\.store: has traces of m, but the chosen cells replay many; give"):
        Replays(home, str(folder / "one.store")).check([replayed()])
    for given in (None, str(folder), str(folder / "many.store"), str(tmp_path)):
        Replays(home, given).check([replayed()])
    Replays(home, str(tmp_path / "other")).check([cell()])


def test_a_single_sequence_is_replayed_without_a_warm_up(home, folder) -> None:
    assert Replays(home, str(folder)).requests(replayed(dataset="one", prompts=1)) == ((0,), None)


def test_traces_are_found_by_name_and_what_is_absent_says_how_to_give_it(home, folder) -> None:
    assert Replays(home, str(folder)).path("many") == folder / "many.store"
    assert Replays(home, str(folder / "one.store")).path("one") == folder / "one.store"
    for location in (None, str(folder)):
        with pytest.raises(Unavailable) as caught:
            Replays(home, location).path("other")
        assert "--traces" in caught.value.hint
    with pytest.raises(InputError, match=r"--traces .*nowhere: no such file"):
        Replays(home, "nowhere")
    assert Replays(home).weights(replayed()) == {"model": None, "predictor": None}


def test_a_request_charges_the_imitated_models_experts(home, folder) -> None:
    options = Replays(home, str(folder)).options(replayed())
    # 10 MB an expert at 20 GB/s, a layer of 1 ms: see the sample profile.
    assert options["expert_bytes"] == 10_000_000
    assert options["pace"] == {
        "layer_seconds": pytest.approx(1e-3),
        "expert_seconds": pytest.approx(5e-4),
        "misses": None,
    }
    assert options["predictor"] == "previous"


def test_a_predictor_is_made_once_from_the_training_part_alone(home, folder, monkeypatch) -> None:
    made = []

    def make(kind, train, **_):
        made.append((kind, digest(train)))
        return Previous(2, 4, 1), {"traces": digest(train)}

    monkeypatch.setattr(module, "make_predictor", make)
    cells, said = [replayed(predictor="mamba2"), replayed(), cell(system="lru")], []
    for _ in range(2):
        found = Replays(home, str(folder))
        found.prepare(cells, said.append)
    assert made == [("mamba2", digest(split(traces(60), 0.1)[0]))] and len(said) == 1
    assert (home.work / ".predictors").is_dir() and found.predictor(cells[0]).endswith(".safetensors")
    assert found.weights(cells[0])["predictor"] not in (None, "mamba2")


def test_a_given_predictor_must_not_have_seen_what_is_replayed(home, folder, tmp_path) -> None:
    train, test = split(traces(60), 0.1)
    for name, seen in (("right", train), ("wrong", test)):
        Previous(2, 4, 1).save(tmp_path / f"{name}.safetensors", {"traces": digest(seen)})
    asked = [replayed(predictor="mamba2")]
    with pytest.raises(InputError, match="of kind 'previous', but the suite wants 'mamba2'"):
        Replays(home, str(folder), tmp_path / "right.safetensors").prepare(asked, print)
    module._check(tmp_path / "right.safetensors", replayed(), train)
    with pytest.raises(InputError, match="may have seen what is replayed"):
        module._check(tmp_path / "wrong.safetensors", replayed(), train)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"routing": "replayed"}, "did you mean 'replay'"),
        ({"routing": "replay", "lane": "measured", "hardware": "host"}, "needs a model"),
        ({"link": "card"}, "has its own link"),
        ({"execution": ("graf",)}, "did you mean 'graph'"),
    ],
)
def test_blocks_say_what_is_wrong_with_their_routing(changes, words) -> None:
    fields = {"panel": "p", "lane": "emulated", "systems": ("lru",), "models": ("m",), "residency": (0.5,)}
    fields |= {"dataset": "d", "prompts": 1, "decode_tokens": (2,), "hardware": "card"}
    with pytest.raises(ValueError, match=words):
        Block(**(fields | changes))


def test_a_comparison_goes_on_with_the_factor_that_it_began_with() -> None:
    item = record(stats={"dilation": 7.0}, lane="emulated", hardware="card")
    other = record(stats={"dilation": 3.0}, lane="emulated", hardware="card", batch=2, prompts=2)
    late = replace(item, status=Status("invalid", "late"))
    assert Dilations([item, other]).of(replace(item.cell, system="seqmoe", residency=0.15)) == 7.0
    assert Dilations([item, other]).of(other.cell) == 3.0
    assert Dilations([item, late]).of(item.cell) is None, "what could not keep up is no model"
    assert Dilations([item]).of(replace(item.cell, lane="measured", hardware="host")) is None


def test_the_factor_of_a_comparison_is_found_with_all_its_predictors(home, folder) -> None:
    found = Replays(home, str(folder))
    lru = replayed(system="lru", predictor="")
    found.prepare([lru, replayed(), replayed(predictor="online_first_order"), replayed(residency=0.5)], print)
    assert found.options(lru)["trial"] == ["previous", "online_first_order"]
    assert found.options(lru)["predictor"] is None
