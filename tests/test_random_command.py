"""Protects the options of random weights: together or not at all, labelled everywhere, exit code 2 with the sum."""

from __future__ import annotations

import json

import pytest

RANDOM = ("--config", "qwen3-30b-a3b-fp8", "--weights", "random")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["generate", *RANDOM], "random weights need --routing replay:SRC"),
        (["generate", *RANDOM[:2]], "--weights is missing; --config qwen3-30b-a3b-fp8 needs --weights random"),
        (["generate", *RANDOM[:2], "--weights", "randum"], "--weights randum: did you mean 'random'?"),
        (["generate", "--weights", "random", "--prompt", "x"], "--weights random: belongs to --config NAME"),
        (["generate", "--layers", "2", "--prompt", "x"], "--layers 2: belongs to --config NAME"),
        (["generate", *RANDOM, "--routing", "replay:x", "--prompt", "y"], "--prompt, --emulate: random weights decode"),
        (["generate", *RANDOM, "--routing", "replay:nothing-here", "--system", "lru"], "nothing-here: no such"),
        (["generate", *RANDOM, "--routing", "replay:x", "--host", "disk"], "--host disk: random weights come from no"),
        (["generate", "--config", "qwen3", "--weights", "random", "--routing", "replay:x"], "'qwen3' is not declared"),
        (["bench", "fig8", *RANDOM, "--routing", "replay:synthetic"], "study 'fig8' runs no model"),
        (["bench", "sizes", "--routing", "replay:synthetic"], "--routing replay:synthetic: belongs to --config NAME"),
        (["bench", "sizes", *RANDOM], "random weights need --routing replay:SRC"),
        (["bench", "sizes", *RANDOM, "--routing", "replay:x", "--traces", "y"], "names the traces already"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(seqmoe, args, message) -> None:
    code, out, err = seqmoe(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_model_too_large_for_this_machine_ends_with_the_sum(seqmoe, real_data, monkeypatch) -> None:
    from seqmoe.runtime import memory_plan
    from seqmoe.runtime.available_memory import Available

    monkeypatch.setattr(memory_plan, "available_memory", lambda: Available(2**33, "a test"))
    source = f"replay:{real_data / 'traces' / 'qwen3-30b-a3b.route.csv'}"
    code, _, err = seqmoe("generate", *RANDOM, "--routing", source, "--tokens", "4", "--system", "lru")
    assert code == 2
    # 48 x 128 experts of 9,437,184 bytes in bf16.
    assert "host pool 54.00 GiB + slot pool 24.30 GiB" in err and "--layers below 48" in err


def test_generate_runs_on_random_weights_and_says_so(seqmoe, tmp_path) -> None:
    code, _, _ = seqmoe("trace", "synth", "--model", "reference", "--out", str(tmp_path / "store"), "--requests", "2",
                        "--prompt", "3", "--decode", "8")  # fmt: skip
    assert code == 0
    given = ("generate", "--config", "reference", "--weights", "random", "--layers", "2", "--tokens", "5",
             "--routing", f"replay:{tmp_path / 'store'}", "--json")  # fmt: skip
    code, out, err = seqmoe(*given, "--system", "full")
    full = json.loads(out.strip().splitlines()[-1])
    assert code == 0 and full["origin"] == "random weights, replayed routing, the first 2 layers"
    code, out, err = seqmoe(*given[:-1], "--system", "lru", "--residency", "0.2")
    assert code == 0 and out == ""
    assert err.splitlines()[-2] == "random weights, replayed routing, the first 2 layers"
    assert f"sha256 {full['sha256'][:12]}" in err
