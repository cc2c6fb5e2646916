"""Protects the command line: what it prints, and one plain line with exit code 2 for wrong input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer

from seqmoe import __main__ as command
from seqmoe import __version__
from seqmoe.predictor.first_order import FirstOrder


def _last_json(text: str):
    return json.loads(text.strip().splitlines()[-1])


def test_the_version_is_the_packages(seqmoe):
    assert seqmoe("--version") == (0, f"seqmoe {__version__}\n", "")


def test_reference_info_prints_the_card(seqmoe):
    code, out, _ = seqmoe("reference", "info", "--json")
    card = _last_json(out)
    assert code == 0
    assert card["held_out_perplexity"]["model"] < card["held_out_perplexity"]["bigram"]
    routing = card["routing_on_held_out_text"]
    assert routing["entropy_min"] >= 0.85
    assert routing["overlap"] > 1.2 * routing["overlap_shuffled"]
    assert all(0.4 <= rate <= 0.95 for name, rate in routing["hit_rate"].items() if name.startswith("lru"))
    assert card["bytes"] <= 20e6


def test_generate_gives_full_loads_answer_through_an_emulated_link(seqmoe):
    prompt = ("--model", "reference", "--prompt", "def fibonacci(n):", "--tokens", "24", "--json")
    code, out, _ = seqmoe("generate", *prompt, "--system", "full")
    full = _last_json(out)
    assert (code, full["lane"], full["hit_rate"]) == (0, "measured", 1)
    assert full["ttft_s"] > 0 and full["missing"] == {}
    emulated = ("--emulate", "rtx4090", "--dilation", "4")
    code, out, _ = seqmoe("generate", *prompt, "--system", "seqmoe", "--residency", "0.45", *emulated)
    ours = _last_json(out)
    assert (code, ours["lane"]) == (0, "emulated")
    assert ours["ttft_s"] is None and "only decoding is paced" in ours["missing"]["ttft_s"]
    assert ours["sha256"] == full["sha256"]
    assert len(ours["tokens"]) == 24
    assert 0 < ours["hit_rate"] < 1
    assert ours["bytes"]["on_demand"] > 0
    assert ours["breakdown"]["overlap_ratio"] == pytest.approx(0.9, abs=0.01)
    assert ours["breakdown"]["dilation"] == 4
    # 122.7 tok/s of 48 layers, on twelve layers: no system is faster than that.
    assert ours["decode_tok_s"] < 1.01 * 122.7 * 48 / 12


def test_replay_prints_rows(seqmoe, real_data):
    trace = str(real_data / "traces" / "qwen3-30b-a3b.route.csv")
    code, out, _ = seqmoe("replay", "--traces", trace, "--policies", "lru", "--residency", "0.15", "--json")
    (row,) = _last_json(out)["rows"]
    assert (code, row["policy"], row["contract"], row["slots"]) == (0, "lru", "event", 922)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["generate", "--prompt", "x", "--residency", "1.5"], "residency = 1.5: must lie in (0, 1]"),
        (["generate", "--prompt", "x", "--residency", "0.001"], "smallest legal residency"),
        (["generate", "--prompt", ""], "the prompt has no tokens"),
        (["generate"], "--prompt is missing"),
        (["generate", "--routing", "replay:x"], "needs --emulate"),
        (["generate", "--routing", "trace:x"], "must be model, or replay:SRC"),
        (["generate", "--routing", "replay:x", "--prompt", "y"], "replayed routing has no text"),
        (["generate", "--routing", "replay:x", "--emulate", "rtx4090"], "x: no such"),
        (["generate", "--prompt", "x", "--tokens", "5000"], "exceed the model's context"),
        (["generate", "--prompt", "x", "--model", "no/such/folder"], "--model no/such/folder: no such folder"),
        (["generate", "--prompt", "x", "--model", "referense"], "did you mean 'reference'?"),
        (["generate", "--prompt", "x", "--system", "seqmo"], "did you mean 'seqmoe'?"),
        (["generate", "--prompt", "x", "--emulate", "rtx4080"], "did you mean 'rtx4090'?"),
        (["generate", "--prompt", "x", "--emulate", "h200"], "h200.toml: declares no model in emulates"),
        (["generate", "--prompt", "x", "--dilation", "2"], "give --emulate with a GPU too"),
        (["generate", "--prompt", "x", "--dtype", ""], "dtype '' is not computed"),
        (["generate", "--prompt", "x", "--threads", "100000"], "--threads"),
        (["generate", "--routing", "replay:x", "--emulate", "rtx4090", "--dtype", "auto"], "runs no model"),
        (["generate", "--prompt", "x", "--system", "lru", "--predictor", "x"], "system 'lru' makes no forecasts"),
        (["replay", "--traces", "absent.csv"], "absent.csv: no such trace file"),
        (["bench", "fig66"], "fig66"),
        (["bench", "emulated", "--traces", __file__], f"--traces {__file__}: not a known trace format"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(seqmoe, args, message):
    code, out, err = seqmoe(*args)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_unknown_options_and_commands_exit_2(seqmoe):
    assert seqmoe("replay", "--trace", "x")[0] == 2
    assert seqmoe("repley")[0] == 2


def _commands(group, path=()):
    """Every command below a group, by its words."""
    for name, below in getattr(group, "commands", {}).items():
        yield (*path, name)
        yield from _commands(below, (*path, name))


@pytest.mark.parametrize("words", list(_commands(typer.main.get_command(command.app))), ids=" ".join)
def test_every_command_explains_itself(seqmoe, words):
    code, out, _ = seqmoe(*words, "--help")
    assert code == 0
    assert "--help" in out and "Usage:" in out


def test_a_predictor_of_another_model_is_refused(seqmoe, tmp_path):
    file = tmp_path / "other.safetensors"
    FirstOrder(np.full((2, 4, 4), 0.25, dtype=np.float32), top_k=1).save(file, {})
    code, _, err = seqmoe("generate", "--prompt", "x", "--predictor", str(file))
    assert code == 2
    assert "made for 2 layers of 4 experts, but the model has 12 of 64" in err


def test_generate_replays_routing_through_the_real_pipeline(seqmoe, real_data):
    trace = f"replay:{real_data / 'traces' / 'qwen3-30b-a3b.route.csv'}"
    shared = ("generate", "--routing", trace, "--emulate", "rtx4090", "--tokens", "4", "--residency", "0.15", "--json",
              "--dilation", "2")  # fmt: skip
    code, out, _ = seqmoe(*shared, "--system", "full")
    full = _last_json(out)
    assert (code, full["lane"], full["text"]) == (0, "emulated", "")
    assert full["ttft_s"] is None and full["missing"]["ttft_s"]
    code, out, _ = seqmoe(*shared, "--system", "seqmoe", "--predictor", "online_first_order")
    ours = _last_json(out)
    assert code == 0 and ours["sha256"] == full["sha256"] and 0 < ours["hit_rate"] < 1
    # 6 experts a layer at most, of 4,718,592 bytes.
    assert 0 < ours["bytes"]["on_demand"] <= 3 * 48 * 6 * 4_718_592
