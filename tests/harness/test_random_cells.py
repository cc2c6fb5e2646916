"""Protects cells of random weights: what they are made of, told by, refused for, and that their worker gets it all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from harness_samples import cell, record

from seqmoe.harness import launch as launch_module
from seqmoe.harness import random_cells as module
from seqmoe.harness.conditions import newest_only
from seqmoe.harness.launch import HomeLauncher
from seqmoe.harness.random_cells import RandomConfig, check_memory
from seqmoe.harness.replays import Replays
from seqmoe.harness.request import Requests
from seqmoe.harness.same_answer import workload
from seqmoe.predictor.previous import Previous
from seqmoe.runtime import memory_plan
from seqmoe.runtime.available_memory import Available
from seqmoe.runtime.protocol import parse_request
from seqmoe.runtime.random_model.opened import Opened
from seqmoe.simulate import synthetic
from seqmoe.spec.errors import InputError, OutOfMemoryError
from seqmoe.spec.paths import find_home
from seqmoe.spec.suite import Block, load_suite
from seqmoe.traces.source import load_traces
from seqmoe.traces.store import MANIFEST

ENVIRONMENT = {"gpus": [], "host": "h", "threads": 1}
MEASURED = [cell(system=name, residency=0.5, prompts=2, decode_tokens=4) for name in ("lru", "seqmoe", "llama_cpp")]


@pytest.fixture
def home(tmp_path):
    """The project's own declarations, and a place to write."""
    return replace(find_home(), work=tmp_path)


@pytest.fixture
def drawn(monkeypatch):
    """Short synthetic traces."""
    monkeypatch.setattr(synthetic, "_PROMPT", 3)
    monkeypatch.setattr(synthetic, "_DECODE", 6)


def cells(home, **changes):
    config = RandomConfig("reference", "synthetic", **changes)
    return config, config.cells(home, MEASURED, Replays(home), None)


def test_measured_cells_of_our_own_systems_get_the_declared_model(home, drawn) -> None:
    _, (lru, seqmoe) = cells(home, layers=2)
    assert (lru.model, lru.weights, lru.routing, lru.dataset) == (
        "reference", "random", "replay", "synthetic-reference",
    )  # fmt: skip
    assert (lru.predictor, seqmoe.predictor) == ("", "online_first_order")
    assert lru.label == "lru reference 50% measured, random weights, replayed routing, the first 2 layers"
    assert len({lru.key, replace(lru, layers=0).key, replace(lru, weights="").key}) == 3


def test_their_worker_gets_model_traces_and_held_out_requests(home, drawn) -> None:
    _, (_, seqmoe) = cells(home, layers=2)
    request = parse_request(json.dumps(Requests(home, ENVIRONMENT, 1).build(seqmoe)))
    random = request.random
    assert random.model.name == "reference" and random.layers == 2 and random.predictor == "online_first_order"
    assert len(random.requests) == 2 and random.warm_up not in (None, *random.requests)
    assert Opened.of(random).checkpoint.geometry.layers == 2
    launcher = HomeLauncher(home, ENVIRONMENT)
    assert launcher.obstacle(seqmoe) is None
    assert launcher.group(seqmoe) != launcher.group(replace(seqmoe, layers=0))


def test_a_given_predictor_names_its_kind(home, drawn, tmp_path) -> None:
    Previous(12, 64, 6).save(tmp_path / "p.safetensors", {})
    config = RandomConfig("reference", "synthetic")
    found = config.cells(home, MEASURED, Replays(home), tmp_path / "p.safetensors")
    assert {one.predictor for one in found} == {"", "previous"}


def test_suites_without_such_cells_and_unknown_models_are_refused(home, drawn) -> None:
    with pytest.raises(InputError, match="no measured cells of our own systems"):
        RandomConfig("reference", "synthetic").cells(home, MEASURED[2:], Replays(home), None)
    with pytest.raises(InputError, match="did you mean 'reference'"):
        RandomConfig("referense", "synthetic").cells(home, MEASURED, Replays(home), None)


def test_what_does_not_fit_is_refused_with_the_sum_before_anything_runs(home, drawn, monkeypatch) -> None:
    _, (lru, _) = cells(home)
    monkeypatch.setattr(memory_plan, "available_memory", lambda: Available(2**20, "a test"))
    with pytest.raises(OutOfMemoryError, match=r"host pool 13\.5 MiB \+ slot pool 6\.8 MiB"):
        check_memory(home, lru, Replays(home))
    with pytest.raises(OutOfMemoryError):
        cells(home)


def test_what_this_machine_cannot_run_is_an_obstacle_that_draws_nothing(home) -> None:
    graph, *_ = load_suite(home.suites / "gpu.toml").cells("quick")
    launcher = HomeLauncher(home, ENVIRONMENT)
    found = launcher.obstacle(graph)
    assert found is not None and "needs the CUDA runtime" in found.reason and "nox -s gpu" in found.hint
    huge = replace(graph, model="gpt-oss-120b-mxfp4", execution="sync")
    on_gpu = HomeLauncher(home, ENVIRONMENT | {"own_device": "cuda"})
    assert on_gpu.random_obstacle(graph) is None or "GiB of host memory" in on_gpu.random_obstacle(graph).reason
    assert launcher.random_obstacle(replace(huge, layers=1)) is None
    assert launcher.random_obstacle(cell(system="lru")) is None
    assert not (home.work / ".traces").exists()


def test_a_model_larger_than_memory_is_an_obstacle(home, monkeypatch) -> None:
    sync = replace(load_suite(home.suites / "sizes.toml").cells("quick")[0], execution="sync")
    monkeypatch.setattr(launch_module, "available_memory", lambda: Available(2**34, "a test"))
    found = HomeLauncher(home, ENVIRONMENT).random_obstacle(sync)
    assert found is not None and found.reason == "its experts take 27 GiB of host memory, 16 are available"
    assert "--layers N" in found.hint


def test_synthetic_traces_are_drawn_once_and_are_the_same_anywhere(home, drawn) -> None:
    path = Replays(home).path("synthetic-reference")
    traces = load_traces(path)
    assert (traces.layers, traces.experts, traces.top_k, traces.source) == (12, 64, 6, "synthetic routing")
    before = (path / MANIFEST).stat().st_mtime_ns
    assert Replays(home).path("synthetic-reference") == path
    assert (path / MANIFEST).stat().st_mtime_ns == before


def test_records_of_random_weights_stand_apart_from_emulated_ones_of_the_same_traces() -> None:
    random = record(routing="replay", weights="random", environment={"host": "h", "weights": {"model": "random x"}})
    emulated = record(
        routing="replay", lane="emulated", hardware="card", environment={"host": "h", "weights": {"model": "x"}}
    )
    assert newest_only([random, emulated]).remarks == ()
    assert workload(random.cell) != workload(replace(random.cell, weights=""))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "randon"}, "did you mean 'random'"),
        ({"weights": "random"}, "needs routing 'replay' and lane 'measured'"),
        ({"weights": "random", "routing": "replay", "lane": "emulated", "hardware": "card"}, "lane 'measured', not"),
        ({"layers": 3}, "cuts a model of weights = 'random'"),
    ],
)
def test_blocks_say_what_is_wrong_with_their_weights(changes, words) -> None:
    fields = {"panel": "p", "lane": "measured", "systems": ("lru",), "models": ("m",), "residency": (0.5,)}
    fields |= {"dataset": "d", "prompts": 1, "decode_tokens": (2,)}
    with pytest.raises(ValueError, match=words):
        Block(**(fields | changes))


def test_the_suite_of_sizes_is_of_random_weights_only(home) -> None:
    for profile in ("quick", "full"):
        declared = load_suite(home.suites / "sizes.toml").cells(profile)
        assert {one.weights for one in declared} == {"random"}
        assert {synthetic.is_synthetic(one.dataset) for one in declared} == {True}
    assert module.RANDOM == "random"
