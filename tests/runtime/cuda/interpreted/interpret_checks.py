"""Protects the checks that a GPU is to run: on a CPU they pass, and each finds what is wrong and says so."""

from __future__ import annotations

import json

import pytest
import torch

from seqmoe.adapters.base import ExpertFormat
from seqmoe.runtime.cuda.checks import CheckFailed, __main__, answers, kernels, latency
from seqmoe.runtime.cuda.checks.answers import check_family, check_memory_slope
from seqmoe.runtime.cuda.checks.capture import check_capture
from seqmoe.runtime.cuda.checks.kernels import Sizes, check_copies, check_experts, check_kernels, check_slots
from seqmoe.runtime.cuda.checks.latency import check_copy_speed, check_slot_counts
from seqmoe.runtime.cuda.checks.timing import seconds_of
from seqmoe.runtime.cuda.device import HostDevice
from seqmoe.runtime.cuda.format import PoolFormat
from seqmoe.spec.geometry import Geometry

HOST = HostDevice()
SMALL = PoolFormat(ExpertFormat(256, 256, "bfloat16"), "fp8")


def test_kernels_pass_in_every_format() -> None:
    found = check_kernels(HOST, Sizes(256, 256))
    assert set(found["experts_error"]) == {"bf16", "fp8", "mxfp4, biases", "mxfp4, clamped"}
    assert all(0 <= error < 0.01 for error in found["experts_error"].values()) and found["lru_hits"] > 0


def test_a_wrong_kernel_is_found(monkeypatch) -> None:
    launch = kernels.experts.launch

    def wrong(weights, hidden, ids, *others):
        launch(weights, hidden, ids.flip(0), *others)

    monkeypatch.setattr(kernels.experts, "launch", wrong)
    with pytest.raises(CheckFailed, match="experts kernel, fp8: differs by"):
        check_experts(SMALL, HOST)
    monkeypatch.setattr(kernels.experts, "launch", lambda *_: None)
    with pytest.raises(CheckFailed, match="differs by nan%"):
        check_experts(SMALL, HOST)
    monkeypatch.setattr(kernels.copy_misses, "launch", lambda *_: None)
    with pytest.raises(CheckFailed, match="miss copy: gate_up of slot 0 is not what the host has"):
        check_copies(SMALL, HOST)
    retention = kernels.device_retention
    monkeypatch.setattr(kernels, "device_retention", lambda _, *others: retention("none", *others))
    with pytest.raises(CheckFailed, match="hits of LRU, a plain simulation has"):
        check_slots(HOST)
    monkeypatch.setattr(kernels.greedy, "launch", lambda *_: None)
    with pytest.raises(CheckFailed, match="greedy head"):
        kernels.check_greedy(HOST)


def test_a_family_gives_full_loads_tokens_and_a_difference_is_found(monkeypatch) -> None:
    found = check_family("mixtral", HOST, 3)
    assert found["tokens"] == 3 and found["graph_from_sync"] == 0
    layer = answers.CudaEngine.generate

    def noisy(self, *arguments, **options):
        results = layer(self, *arguments, **options)
        if isinstance(self.placement, answers_slots()):
            results[0].logits[1] += 1
        return results

    monkeypatch.setattr(answers.CudaEngine, "generate", noisy)
    with pytest.raises(CheckFailed, match=r"mixtral: seqmoe, graph, at 100% differs from full load at token 1"):
        check_family("mixtral", HOST, 2)


def answers_slots():
    from seqmoe.runtime.cuda.placement import Slots

    return Slots


def test_a_capture_is_counted_and_memory_that_grows_is_found(monkeypatch) -> None:
    found = check_capture(HOST, steps=2)
    # land, plan, copy, lend, two of experts, release: seven a layer; a forecast's scores and tasks; the head's two.
    assert found["kernel_launches_of_ours"] == 2 * 7 + 2 * 2 + 2
    assert found["seconds_per_step"] > 0
    grown = iter(range(0, 10_000, 64))
    monkeypatch.setattr(answers, "_taken", lambda device: next(grown))
    with pytest.raises(CheckFailed, match="device memory grows by 64 bytes"):
        check_memory_slope(HOST, steps=10)


def test_latencies_are_of_every_size() -> None:
    assert set(check_copy_speed(HOST, SMALL, (1, 2), repeats=2)["bytes_per_second"]) == {"1", "2"}
    found = check_slot_counts(HOST, SMALL, Geometry(2, 8, 2), (6, 12), repeats=2)
    assert set(found) == {"6", "12"} and all(value > 0 for row in found.values() for value in row.values())
    calls = []
    assert seconds_of(lambda: calls.append(1), HOST, repeats=4, warm_up=2) >= 0 and len(calls) == 6
    assert latency._EXPERT.expert_bytes == 4_718_592 + 4 * (12 * 16 + 16 * 6)


def test_a_check_by_name_prints_json_or_a_sentence(monkeypatch, capsys) -> None:
    monkeypatch.setitem(__main__.CHECKS, "kernels", lambda device: {"error": 0.5})
    assert __main__.main(["kernels"], HOST) == 0
    assert json.loads(capsys.readouterr().out) == {"error": 0.5}

    def fails(device):
        raise CheckFailed("differs")

    monkeypatch.setitem(__main__.CHECKS, "kernels", fails)
    assert __main__.main(["kernels"], HOST) == 1
    assert capsys.readouterr().err == "kernels: differs\n"
    monkeypatch.setattr(__main__, "GpuDevice", _no_gpu)
    assert __main__.main(["kernels"]) == 2
    assert "libcuda" in capsys.readouterr().err
    assert torch.get_num_threads() >= 1


def _no_gpu():
    from seqmoe.core.driver import CudaMissingError

    raise CudaMissingError("libcuda.so.1: cannot open shared object file")
