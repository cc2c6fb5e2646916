"""Protects the simulator's commands: their JSON, their labels, and one plain line for wrong input."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from seqmoe.cli import app, plan, simulate
from seqmoe.spec.errors import InputError
from seqmoe.traces.source import load_traces


def run(*args: str) -> dict:
    found = CliRunner().invoke(app, [*args, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout.splitlines()[-1])


def test_a_cell_says_that_it_is_simulated_and_where_its_time_goes() -> None:
    found = run("simulate", "cell", "--model", "gpt-oss-120b-mxfp4", "--gpu", "rtx-pro-6000", "--system", "full")
    assert (found["lane"], found["routing"]) == ("simulated", "synthetic routing")
    assert found["decode_tok_s"] == pytest.approx(175.7, rel=1e-3)
    assert sum(found["breakdown"].values()) == pytest.approx(1)
    assert found["hit_rate"] == 1


def test_a_terminal_shows_what_is_simulated_meanwhile(monkeypatch) -> None:
    def answer(home, question, tell):
        tell("lru")
        raise InputError("enough")

    monkeypatch.setattr("seqmoe.simulate.advice.answer.answer", answer)
    for command, module, shown in (
        (("simulate", "cell", "--model", "gpt-oss-120b-mxfp4", "--system", "full"), simulate, "simulating full on"),
        (("plan", "--model", "gpt-oss-120b-mxfp4"), plan, "simulating lru"),
    ):
        terminal = Console(file=StringIO(), force_terminal=True, width=120)
        monkeypatch.setattr(module, "err", terminal)
        CliRunner().invoke(app, [*command, "--gpu", "rtx-pro-6000", "--batch", "2"])
        assert shown in terminal.file.getvalue()


def test_wrong_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama\.cpp'"):
        run("simulate", "cell", "--model", "gpt-oss-120b-mxfp4", "--gpu", "rtx4090", "--system", "lama.cpp")
    with pytest.raises(InputError, match=r"has no \[decoding\]"):
        run("simulate", "cell", "--model", "reference", "--gpu", "rtx4090")


def test_a_residency_that_cannot_be_is_refused() -> None:
    cell = ("simulate", "cell", "--model", "gpt-oss-120b-mxfp4", "--gpu", "rtx4090")
    for residency, system in (("nan", "seqmoe"), ("0", "lru"), ("2", "llama.cpp")):
        with pytest.raises(InputError, match=rf"--residency {residency}: must lie in"):
            run(*cell, "--system", system, "--residency", residency)
    with pytest.raises(InputError, match=r"0 slots cannot hold the 4 experts"):
        run(*cell, "--residency", "1e-9")


def test_a_plan_answers_only_for_what_is_declared() -> None:
    for arguments, message in (
        (("--gpu", "rtx4091", "--model", "qwen3-30b"), "did you mean 'rtx4090'"),
        (("--gpu", "rtx", "--model", "qwen3-30b"), "give one of rtx-pro-6000, rtx4090, rtx5090"),
        (("--gpu", "rtx4090", "--model", "gpt-oss"), "give one of gpt-oss-120b-mxfp4, gpt-oss-20b-mxfp4"),
        (("--gpu", "rtx4090", "--model", "qwen3-30b", "--ram", "0"), "--ram 0: must be positive"),
        (("--gpu", "rtx4090", "--model", "reference"), r"has no \[decoding\]; the simulator needs it: see"),
    ):
        with pytest.raises(InputError, match=message):
            run("plan", *arguments)


def test_synthetic_traces_are_a_store_like_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    arguments = ("--model", "reference", "--requests", "2", "--prompt", "4", "--decode", "6")
    found = run("trace", "synth", "--out", str(folder), *arguments)
    assert (found["requests"], found["tokens"]) == (2, 20)
    traces = load_traces(folder)
    assert (traces.source, traces.layers, traces.experts, traces.top_k) == ("synthetic routing", 12, 64, 6)
    with pytest.raises(InputError, match="--requests 0"):
        run("trace", "synth", "--out", str(tmp_path / "none"), "--model", "reference", "--requests", "0")
