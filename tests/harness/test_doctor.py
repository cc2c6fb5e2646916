"""`seqmoe doctor`: what it says of a machine without a GPU, and of GPUs that a made-up driver describes."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest

from seqmoe import __main__ as command
from seqmoe.core.driver import Bandwidth, Gpu, Gpus, NoGpu, PcieLink
from seqmoe.harness.doctor import examination, lanes
from seqmoe.harness.doctor.examination import examine
from seqmoe.harness.doctor.gpus import gpu_state, nearest_profile
from seqmoe.harness.doctor.suites import suite_states
from seqmoe.harness.fingerprint import fingerprint
from seqmoe.harness.gpu import needs
from seqmoe.spec.paths import find_home

GIB = 2**30
RESTING, AWAKE = PcieLink(1, 16, 4, 16), PcieLink(4, 8, 4, 16)
CARD = Gpu(
    index=0, name="NVIDIA GeForce RTX 4090", pci_bus_id="0000:01:00.0", memory_bytes=24 * GIB,
    compute_capability=(8, 9), multiprocessors=128, copy_engines=2, maps_host_memory=True, host_atomics=False,
    pcie=RESTING,
)  # fmt: skip
NONE = NoGpu("no CUDA driver")


def machine_with(*cards: Gpu) -> Gpus:
    return Gpus((12, 8), "570.86.15", cards)


def lane(found, name):
    return next(lane for lane in found.lanes if lane.name == name)


@pytest.fixture(scope="module")
def clone():
    return find_home()


@pytest.fixture(scope="module")
def with_card(clone):
    return examine(clone, machine_with(CARD), lambda gpu: Bandwidth(13.1e9, 9.9e9, AWAKE))


@pytest.fixture(scope="module")
def without(clone):
    return examine(clone, NONE)


def test_without_a_gpu_three_lanes_are_there_and_the_fourth_says_what_it_needs(without):
    assert {lane.name: lane.ready for lane in without.lanes} == {
        "measured CPU": True, "emulated": True, "simulated": True, "measured GPU": False,
    }  # fmt: skip
    needs = lane(without, "measured GPU").needs
    assert needs[0].reason == "no CUDA driver"
    assert "seqmoe bench fig6 --profile full --device cuda" in [need.command for need in needs]


def test_every_suite_of_the_repository_is_listed_and_none_is_wrong(without, clone):
    assert {suite.name for suite in without.suites} >= {"fig1", "fig2", "fig3", "fig4", "fig6", "fig7", "fig8", "fig9"}
    assert [suite.wrong for suite in without.suites if suite.wrong] == []
    for suite in without.suites:
        for profile in suite.profiles.values():
            assert profile.ready == sum(can for can, _ in profile.lanes.values())
            assert profile.cells - profile.ready == sum(need.cells for need in profile.needs)


def test_simulated_and_emulated_cells_of_figure_6_run_anywhere(without):
    profiles = next(suite for suite in without.suites if suite.name == "fig6").profiles
    can, of = profiles["quick"].lanes["emulated"]
    assert can == of > 0
    assert profiles["simulated"].lanes["simulated"][0] > 200


def test_a_gpu_is_described_as_the_driver_and_the_copies_tell(with_card):
    (gpu,) = with_card.gpus
    assert (gpu.driver, gpu.cuda, gpu.compute_capability) == ("570.86.15", "12.8", "8.9")
    assert (gpu.link_idle, gpu.link_contended) == (13.1, 9.9)
    # The link that was seen awake, not the one that rested.
    assert (gpu.pcie, gpu.pcie_most) == ((4, 8), (4, 16))
    assert (gpu.profile, gpu.same) == ("rtx4090", True)
    fits = {fit.model: fit for fit in gpu.models}
    assert 1.0 in fits["reference"].residencies
    assert fits["deepseek-v4-flash"].largest < 1


def test_our_own_systems_run_on_a_gpu_that_lacks_nothing(clone, monkeypatch):
    monkeypatch.setattr(needs, "missing_packages", lambda: "")
    able, old = (lanes.lane_states(clone, machine_with(card), [])[-1]
                 for card in (CARD, dataclasses.replace(CARD, compute_capability=(7, 5))))  # fmt: skip
    assert able.ready and "--device cuda" in able.gives and able.needs == ()
    assert not old.ready and "compute capability 7.5" in old.needs[0].reason


def test_measured_cells_of_wrapped_systems_move_to_the_gpu(with_card, without):
    def lanes(found):
        return next(suite for suite in found.suites if suite.name == "fig6").profiles["full"].lanes

    assert "measured cuda" in lanes(with_card)
    assert "measured cuda" not in lanes(without)


@pytest.fixture(scope="module")
def not_copied(clone):
    card = dataclasses.replace(CARD, pcie=None)
    return gpu_state(clone, machine_with(card), card, "CUDA_ERROR_OUT_OF_MEMORY", 64 * GIB)


def test_a_copy_that_fails_is_told_and_stops_nothing(not_copied):
    assert not_copied.link_idle is None and not_copied.pcie is None
    assert not_copied.bandwidth_note == "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.mark.parametrize(
    ("name", "memory", "link", "expected"),
    [
        ("NVIDIA GeForce RTX 4090", 24, 25.0, ("rtx4090", True)),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, 12.0, ("rtx4090", False)),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 96, 55.0, ("rtx-pro-6000", True)),
        ("NVIDIA A100-SXM4-80GB", 80, 26.0, ("rtx-pro-6000", False)),
        ("NVIDIA GeForce RTX 3090", 24, 25.0, ("rtx4090", False)),
        ("NVIDIA H200", 141, 55.0, ("h200", True)),
    ],
)
def test_the_nearest_machine_of_the_paper(clone, name, memory, link, expected):
    card = dataclasses.replace(CARD, name=name, memory_bytes=memory * GIB)
    profile, same = nearest_profile(clone, card, link)
    assert (profile.name, same) == expected


def test_a_suite_that_is_declared_wrongly_is_named(home):
    suite = home.suites / "demo.toml"
    suite.write_text(suite.read_text().replace("prompts = 2", "promts = 2"))
    (state,) = suite_states(home, fingerprint(home) | {"threads": 1})
    assert "did you mean 'prompts'?" in state.wrong


def test_obstacles_are_grouped_by_reason(home):
    suite = home.suites / "demo.toml"
    suite.write_text(suite.read_text().replace('["lru", "seqmoe", "full"]', '["lru", "Rival"]'))
    (state,) = suite_states(home, fingerprint(home) | {"threads": 1})
    quick = state.profiles["quick"]
    assert (quick.ready, quick.cells) == (2, 4)
    assert [(need.reason, need.cells) for need in quick.needs] == [("only full load without a GPU", 2)]


@pytest.fixture
def doctor(monkeypatch, capsys):
    """Run the command where an examination has found so much; returns exit code and stdout."""

    def run(found, *args):
        monkeypatch.setattr(examination, "examine", lambda home: found)
        monkeypatch.setattr(sys, "argv", ["seqmoe", "doctor", *args])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        return stopped.value.code, capsys.readouterr().out

    return run


def test_the_command_prints_lanes_suites_and_baselines(doctor, without):
    code, out = doctor(without)
    assert code == 0
    for text in ("measured GPU", "no CUDA driver", "seqmoe bench fig6", "seqmoe table1", "llama.cpp"):
        assert text in out


def test_json_is_one_object(doctor, without):
    code, out = doctor(without, "--json")
    found = json.loads(out.splitlines()[-1])
    assert code == 0
    assert [lane["name"] for lane in found["lanes"]] == ["measured CPU", "emulated", "simulated", "measured GPU"]
    assert found["no_gpu"] == "no CUDA driver" and found["gpus"] == []


def test_a_gpu_is_printed_with_its_driver_link_and_models(doctor, with_card):
    code, out = doctor(with_card)
    words = " ".join(out.split())
    assert code == 0
    for text in ("compute capability 8.9", "570.86.15, CUDA 12.8", "PCIe 4.0 x8 as negotiated, at most 4.0 x16",
                 "13.1 GB/s idle, 9.9 GB/s contended", "as in the paper rtx4090", "qwen3-30b-a3b-fp8"):  # fmt: skip
        assert text in words


def test_a_gpu_that_cannot_be_copied_to_is_still_printed(doctor, with_card, not_copied):
    code, out = doctor(dataclasses.replace(with_card, gpus=(not_copied,)))
    words = " ".join(out.split())
    assert code == 0
    assert "not measured: CUDA_ERROR_OUT_OF_MEMORY" in words
    assert "link unknown: neither the management library nor the kernel tells" in words
