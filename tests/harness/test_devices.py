"""A cell runs on the GPU only where host, lane and build allow it: a CPU's number must never pass for a GPU's."""

from __future__ import annotations

import pytest
from harness_samples import GPU_HOST, cell, write_baseline

import seqmoe.harness.devices
from seqmoe.harness.devices import Devices

CPU_HOST = {"gpus": []}


@pytest.fixture
def installed(monkeypatch):
    def profile(name):
        monkeypatch.setattr(seqmoe.harness.devices, "installed_profile", lambda baseline, home: name)

    return profile


@pytest.mark.parametrize("system", ["full", "naive", "lru", "seqmoe"])
def test_our_own_runtime_is_on_the_cpu_whatever_the_host_has(home, system) -> None:
    assert Devices(home, GPU_HOST).of(cell(system=system)) == "cpu"


def test_a_baseline_uses_the_gpu_that_there_is_in_the_measured_lane_only(home, installed) -> None:
    write_baseline(home, '["cuda"]')
    installed("quick")
    assert Devices(home, GPU_HOST).of(cell(system="Rival")) == "cuda"
    assert Devices(home, GPU_HOST).of(cell(system="Rival", lane="emulated", hardware="card")) == "cpu"
    assert Devices(home, CPU_HOST).of(cell(system="Rival")) == "cpu"


@pytest.mark.parametrize(("profile", "device"), [("quick", "cpu"), ("full", "cuda"), (None, "cuda")])
def test_of_two_builds_the_quick_one_is_the_cpus(home, installed, profile, device) -> None:
    write_baseline(home, '["cuda", "cpu"]', two_builds=True)
    installed(profile)
    assert Devices(home, GPU_HOST).of(cell(system="Rival")) == device


def test_what_the_capability_matrix_allows_on_the_cpu_alone_runs_there(home, installed) -> None:
    installed(None)
    assert Devices(home, GPU_HOST).of(cell(system="Rival", residency=1.0)) == "cpu"
    write_baseline(home, '["cpu"]')
    assert Devices(home, GPU_HOST).of(cell(system="Rival")) == "cpu"
