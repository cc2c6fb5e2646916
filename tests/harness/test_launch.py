"""What stands in the way of a cell is found without starting it, and a worker is given what the protocol says."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pytest
from harness_samples import GPU_HOST, MODEL, cell, write_baseline, write_predictor

import seqmoe.harness.devices
import seqmoe.harness.launch
from seqmoe.harness.launch import HomeLauncher
from seqmoe.harness.request import Requests

HOST = {"gpus": []}


@pytest.fixture
def launcher(home):
    return HomeLauncher(home, HOST)


def test_our_own_systems_run_with_this_interpreter_and_share_a_worker_per_model(launcher) -> None:
    assert launcher.obstacle(cell(system="seqmoe")) is None
    assert list(launcher.command(cell(system="lru"))) == [sys.executable, "-m", "seqmoe.runtime.worker"]
    assert launcher.group(cell(system="lru")) == launcher.group(cell(system="full", residency=1.0))
    assert launcher.group(cell(system="lru")) != launcher.group(cell(system="lru", model="big"))
    assert launcher.group(cell(system="lru")) != launcher.group(cell(system="Rival"))


def test_the_capability_matrix_answers_before_the_environment_is_looked_for(launcher) -> None:
    status = launcher.obstacle(cell(system="Rival", residency=0.25))
    assert (status.kind, status.reason) == ("unsupported", "only full load without a GPU")


def test_a_baseline_without_environment_says_how_to_install_it(launcher) -> None:
    status = launcher.obstacle(cell(system="Rival", residency=1.0))
    assert (status.kind, status.hint) == ("not_installed", "nox -s baseline-rival")


def test_an_installed_baseline_runs_with_its_own_interpreter(launcher, home, monkeypatch) -> None:
    monkeypatch.setattr(seqmoe.harness.launch, "is_installed", lambda baseline, home: True)
    point = cell(system="Rival", residency=1.0)
    assert launcher.obstacle(point) is None
    python, worker = launcher.command(point)
    assert python.startswith(str(home.environments)) and worker == str(home.baselines / "rival" / "worker.py")


def test_a_wrapped_system_is_not_emulated_and_whatever_can_be_simulated_is(launcher) -> None:
    assert launcher.obstacle(cell(system="Rival", lane="emulated", hardware="card")).kind == "unsupported"
    assert launcher.obstacle(cell(system="lru", lane="simulated", hardware="card")) is None


def test_weights_of_the_hub_that_are_not_here_are_never_fetched(launcher, home) -> None:
    text = MODEL.replace('path = "{path}"', 'hub_id = "nobody/nothing"').replace("{{", "{").replace("}}", "}")
    (home.suites / "models" / "tiny.toml").write_text(text)
    status = launcher.obstacle(cell(system="lru"))
    assert (status.kind, status.hint) == ("not_installed", "hf download nobody/nothing")


def test_a_request_is_what_the_protocol_says(home) -> None:
    point = cell(system="lru", lane="emulated", hardware="card", prompts=2, decode_tokens=7)
    request = Requests(home, HOST, threads=2).build(point)
    assert request == {
        "protocol": 1,
        "cell": asdict(point),
        "model_path": str(home.work / "checkpoint"),
        "model_format": "hf",
        "prompts": [[97] * 3, [98] * 3],
        "decode_tokens": 7,
        "device": "cpu",
        "threads": 2,
        # a layer lasts 1 ms (100 tok/s, 10 layers), an expert of 10 MB half of that at 20 GB/s
        "options": {
            "pace": {"layer_seconds": pytest.approx(1e-3), "expert_seconds": pytest.approx(5e-4), "misses": None},
            "dilation": None,
            "predictor": None,
            "profile": None,
            "link_ratio": None,
        },
    }
    json.dumps(request)


def test_a_measured_cell_has_no_link_and_finds_the_predictor_beside_the_model(home) -> None:
    own = write_predictor(home.work / "checkpoint", b"")
    options = Requests(home, HOST, threads=1).build(cell(system="seqmoe"))["options"]
    assert options == {
        "pace": None,
        "dilation": None,
        "predictor": str(own),
        "profile": None,
        "link_ratio": None,
    }


def test_a_cell_may_name_the_kind_of_its_predictor_and_the_ratio_of_its_link(home) -> None:
    write_predictor(home.work / "checkpoint", b"")
    point = cell(system="seqmoe", predictor="mamba2", link="card", execution="eager")
    options = Requests(home, HOST, threads=1).build(point)["options"]
    assert options["predictor"] is None and options["link_ratio"] == pytest.approx(2.0)
    write_predictor(home.work / "checkpoint", b"other", "mamba2")
    assert Requests(home, HOST, threads=1).build(point)["options"]["predictor"].endswith("mamba2.safetensors")


def test_of_two_predictors_beside_a_model_its_own_is_the_one_of_the_papers_kind(home) -> None:
    counted = write_predictor(home.work / "checkpoint", b"")
    trained = write_predictor(home.work / "checkpoint", b"other", "mamba2")
    requests = Requests(home, HOST, threads=1)
    assert requests.build(cell(system="seqmoe"))["options"]["predictor"] == str(trained)
    named = cell(system="seqmoe", predictor="first_order")
    assert requests.build(named)["options"]["predictor"] == str(counted)


def test_a_predictor_and_a_profile_may_lie_below_the_name_of_a_model_whose_checkpoint_is_not_ones_own(home) -> None:
    folder = home.predictors / "tiny"
    folder.mkdir(parents=True)
    trained, counted = folder / "mamba2.safetensors", folder / "popularity.safetensors"
    trained.write_bytes(b"trained")
    counted.write_bytes(b"counted")
    write_predictor(home.work / "checkpoint", b"other", "mamba2")
    options = Requests(home, HOST, threads=1).build(cell(system="seqmoe"))["options"]
    assert (options["predictor"], options["profile"]) == (str(trained), str(counted))


def test_a_baseline_is_given_the_same_ids_and_none_of_our_options(home) -> None:
    requests = Requests(home, HOST, threads=1)
    theirs, ours = requests.build(cell(system="Rival")), requests.build(cell(system="lru"))
    assert theirs["options"] == {} and theirs["prompts"] == ours["prompts"]


def test_the_worker_is_told_the_device_that_its_record_will_name(home) -> None:
    write_baseline(home, devices='["cuda"]')
    assert Requests(home, GPU_HOST, threads=1).build(cell(system="Rival"))["device"] == "cuda"
    assert Requests(home, GPU_HOST, threads=1).build(cell(system="lru"))["device"] == "cpu"


def test_a_build_for_the_cpu_on_a_host_with_a_gpu_says_which_one_to_install(home, monkeypatch) -> None:
    write_baseline(home, devices='["cuda"]', two_builds=True)
    monkeypatch.setattr(seqmoe.harness.devices, "installed_profile", lambda baseline, home: "quick")
    status = HomeLauncher(home, GPU_HOST).obstacle(cell(system="Rival"))
    assert status.kind == "not_installed" and "--install rival --profile full" in status.hint
    assert HomeLauncher(home, HOST).obstacle(cell(system="Rival")).kind == "unsupported"
