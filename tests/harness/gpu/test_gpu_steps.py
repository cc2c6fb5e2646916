"""Protects `nox -s gpu`: no GPU is no failure but one line, and every step leaves a record of how it ended."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from seqmoe.core.driver import Bandwidth, CudaError, Gpu, Gpus, NoGpu
from seqmoe.harness.devices import OWN_DEVICE, Devices
from seqmoe.harness.gpu import children, needs
from seqmoe.harness.gpu import sizes as sizes_module
from seqmoe.harness.gpu import steps as steps_module
from seqmoe.harness.gpu.__main__ import main
from seqmoe.harness.gpu.children import NotHere, StepFailed
from seqmoe.harness.gpu.record import CHECKS, checks_path
from seqmoe.harness.gpu.steps import STEPS, Step
from seqmoe.harness.replays import Replays
from seqmoe.harness.selection import choose, find_suite
from seqmoe.harness.store import read_records
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

GPU = Gpu(0, "NVIDIA Test", "0000:01:00.0", 24 << 30, (8, 9), 100, 2, True, False, None)
FOUND = Gpus((13, 0), "580.1", (GPU,))


@pytest.fixture
def home(tmp_path):
    return replace(find_home(), work=tmp_path)


@pytest.fixture
def able(monkeypatch):
    monkeypatch.setattr(needs, "missing_packages", lambda: "")


def told(capsys) -> list[str]:
    return capsys.readouterr().out.strip().splitlines()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (NoGpu("no CUDA driver: libcuda.so.1"), "here: no CUDA driver: libcuda.so.1"),
        (replace(FOUND, devices=(replace(GPU, compute_capability=(7, 5)),)), "NVIDIA Test has compute capability 7.5"),
        (replace(FOUND, devices=(replace(GPU, maps_host_memory=False),)), "does not read host memory in place"),
    ],
)
def test_without_a_gpu_it_says_in_one_line_what_it_needs(found, words, home, able, capsys) -> None:
    assert main([], found, home) == 0
    (line,) = told(capsys)
    assert line.startswith("nox -s gpu needs an NVIDIA GPU of compute capability 8.0") and words in line
    assert "host memory" in line and "driver" in line


def test_a_sweep_is_told_what_its_device_lacks_before_it_starts(monkeypatch, able) -> None:
    monkeypatch.setattr(needs, "probe", lambda: NoGpu("no CUDA driver"))
    with pytest.raises(InputError, match=r"--device cuda: needs an NVIDIA GPU.*here: no CUDA driver"):
        needs.check_device("cuda")
    with pytest.raises(InputError, match="--device 'gpu' is unknown"):
        needs.check_device("gpu")
    monkeypatch.setattr(needs, "probe", lambda: FOUND)
    needs.check_device("cuda")
    needs.check_device("cpu")


def test_a_gpu_without_the_packages_for_it_is_told_which(monkeypatch, home, capsys) -> None:
    monkeypatch.setattr(needs.importlib.metadata, "version", lambda name: "2.13.0+cpu")
    assert main([], FOUND, home) == 0
    assert "PyTorch 2.13.0+cpu is a build without CUDA" in told(capsys)[0]

    def version(name):
        if name == "torch":
            return "2.13.0+cu130"
        raise needs.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(needs.importlib.metadata, "version", version)
    assert "Triton is not installed" in needs.missing_packages()


def _raise(error):
    def run(home):
        raise error

    return run


def test_every_step_leaves_a_record_and_a_failure_ends_with_1(home, able, capsys) -> None:
    steps = (
        Step("good", "g", lambda home: {"value": 3}),
        Step("bad", "b", _raise(StepFailed("differs"))),
        Step("cuda", "c", _raise(CudaError("cuInit: CUDA_ERROR_UNKNOWN"))),
        Step("wrong", "w", _raise(InputError("memory: too little"))),
        Step("absent", "a", _raise(NotHere("no tool"))),
    )
    assert main([], FOUND, home, steps) == 1
    lines = told(capsys)
    assert (
        lines[0].startswith("NVIDIA Test; records go to") and lines[-1] == "1 of 5 steps passed, 1 could not run here"
    )
    (path,) = home.results.glob("*/gpu/checks.jsonl")
    records = read_records(path, CHECKS)
    assert [(record.step, record.status.kind) for record in records] == [
        ("good", "ok"), ("bad", "crash"), ("cuda", "crash"), ("wrong", "crash"), ("absent", "not_installed"),
    ]  # fmt: skip
    assert records[0].findings == {"value": 3} and records[1].status.reason == "differs"
    assert path == checks_path(home.results, records[0].environment["host"])
    assert main(["--step", "good", "--step", "absent"], FOUND, home, steps) == 0
    assert len(read_records(path, CHECKS)) == 7
    assert not list(home.results.glob("*/*.jsonl")), "stores of suites are read as cells"


def test_steps_are_listed_and_unknown_ones_refused(home, capsys) -> None:
    assert main(["--list"], NoGpu("x"), home) == 0
    assert len(told(capsys)) == len(STEPS) and len({step.name for step in STEPS}) == len(STEPS)
    assert main(["--step", "kernel"], NoGpu("x"), home) == 2
    assert "did you mean 'kernels'?" in capsys.readouterr().err


def _ended(code, out="", err=""):
    return lambda *_, **__: subprocess.CompletedProcess([], code, out, err)


def test_a_check_is_a_process_whose_end_is_told(monkeypatch) -> None:
    monkeypatch.setattr(children.subprocess, "run", _ended(0, 'noise\n{"error": 0.5}\n'))
    assert children.check("kernels") == {"error": 0.5}
    for ended, words in (
        (_ended(1, err="kernels: differs by 9 %"), "exit code 1: kernels: differs by 9 %"),
        (_ended(-11, err=""), "exit code -11"),
        (_ended(0, "nothing"), "ended without findings"),
    ):
        monkeypatch.setattr(children.subprocess, "run", ended)
        with pytest.raises(StepFailed, match=words):
            children.check("kernels")

    def slow(*_, **__):
        raise subprocess.TimeoutExpired("x", 1)

    monkeypatch.setattr(children.subprocess, "run", slow)
    with pytest.raises(StepFailed, match="did not end within 530 s"):
        children.check("kernels")


def test_the_sanitizer_runs_where_it_is_there(monkeypatch) -> None:
    monkeypatch.setattr(children.shutil, "which", lambda name: None)
    with pytest.raises(NotHere, match="comes with the CUDA toolkit"):
        children.sanitized("memcheck")
    seen = []
    monkeypatch.setattr(children.shutil, "which", lambda name: "/opt/compute-sanitizer")
    monkeypatch.setattr(children, "check", lambda name, before: seen.append((name, before)))
    assert children.sanitized("racecheck") == {"tool": "racecheck", "errors": 0}
    assert seen[0][0] == "kernels" and seen[0][1][:3] == ["/opt/compute-sanitizer", "--tool", "racecheck"]


def test_the_miss_copy_is_set_against_the_link(home, monkeypatch) -> None:
    monkeypatch.setattr(steps_module, "check", lambda name: {"bytes_per_second": {"1": 10.0, "8": 40.0}})
    monkeypatch.setattr(steps_module, "measure_bandwidth", lambda: Bandwidth(50.0, 25.0, None))
    by_name = {step.name: step for step in STEPS}
    assert by_name["copies"].run(home)["share_of_link"] == {"1": 0.2, "8": 0.8}
    assert by_name["bandwidth"].run(home) == {"idle": 50.0, "contended": 25.0, "pcie": None}
    assert by_name["slots"].run(home) == {"bytes_per_second": {"1": 10.0, "8": 40.0}}


def test_every_cell_of_the_suite_belongs_to_exactly_one_step(home, monkeypatch) -> None:
    cells = find_suite(home, "gpu").cells("quick")
    chosen = []
    monkeypatch.setattr(sizes_module, "predictor_path", lambda home: Path(__file__))

    def run_suite(home, suite, *, only, device, **_):
        assert (suite, device) == ("gpu", "cuda")
        chosen.append(choose(cells, only))
        return type("Result", (), {"failed": (), "cells": chosen[-1], "written": 0, "path": Path("gpu.jsonl")})()

    monkeypatch.setattr(sizes_module, "run_suite", run_suite)
    for step in STEPS:
        if step.name.startswith("sizes-"):
            step.run(home)
    assert sorted(cell.key for part in chosen for cell in part) == sorted(cell.key for cell in cells)
    assert {cell.weights for cell in cells} == {"random"}


def test_sizes_need_the_predictor_and_tell_of_cells_that_failed(home, monkeypatch) -> None:
    monkeypatch.setattr(sizes_module, "predictor_path", lambda home: Path("nowhere"))
    with pytest.raises(StepFailed, match="run `--step predictor` first"):
        sizes_module.run_cells(home, ["full"])


def test_our_own_measured_cells_run_on_the_gpu_only_when_told(home) -> None:
    cell = find_suite(home, "gpu").cells("quick")[0]
    environment = {"gpus": [{"name": "x"}], "host": "h"}
    assert Devices(home, environment).of(cell) == "cpu"
    assert Devices(home, environment | {OWN_DEVICE: "cuda"}).of(cell) == "cuda"
    emulated = replace(cell, lane="emulated", weights="", hardware="rtx4090")
    assert Devices(home, environment | {OWN_DEVICE: "cuda"}).of(emulated) == "cpu"


def test_the_predictor_is_of_the_suites_traces(home, monkeypatch) -> None:
    from seqmoe.simulate import synthetic

    monkeypatch.setattr(synthetic, "_REQUESTS", 20)
    monkeypatch.setattr(synthetic, "_PROMPT", 2)
    monkeypatch.setattr(synthetic, "_DECODE", 3)
    path = sizes_module.predictor_path(home)
    assert path.name.startswith("gpu-synthetic-qwen3-30b-a3b-fp8-") and path.parent == home.work / ".predictors"
    seen = {}

    class Made:
        def save(self, path, record):
            path.write_bytes(b"weights")

    def make(kind, part, **options):
        seen.update(kind=kind, requests=len(part.requests), minutes=options["minutes"])
        return Made(), {}

    monkeypatch.setattr(sizes_module, "make_predictor", make)
    assert sizes_module.train(home) == {"made": True, "minutes": 6.0, "bytes": 7}
    assert sizes_module.train(home) == {"made": False, "bytes": 7}
    drawn = len(Replays(home).traces("synthetic-qwen3-30b-a3b-fp8").requests)
    assert seen["kind"] == "mamba2" and seen["requests"] < drawn
