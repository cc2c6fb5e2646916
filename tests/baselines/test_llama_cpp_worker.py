"""Protects the comparison with llama.cpp: its greedy tokens are Transformers' own, hidden tokens included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from seqmoe.harness.environments import environment_python, is_installed
from seqmoe.reference import tokenizer
from seqmoe.reference.gguf_file.file import export_gguf
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.paths import find_home

TOKENS = 64
PROMPTS = [[3, 1, 4, 1, 5], [250, 251, 252], [17], list(range(1, 60))]


@pytest.fixture(scope="module")
def python():
    home = find_home(Path(__file__).parent)
    baseline = load_baselines(home.baselines)["llama_cpp"]
    if not is_installed(baseline, home):
        pytest.skip("llama.cpp's environment is not installed here; make it with: nox -s baseline-llama-cpp")
    return environment_python(baseline, home)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random model: most of its tokens are single bytes, which seldom make whole UTF-8 characters."""
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=288, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=12, num_experts_per_tok=3,
        norm_topk_prob=True, max_position_embeddings=512, tie_word_embeddings=True, eos_token_id=0,
        initializer_range=0.2,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.train(["abc abd " * 9], 260).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def greedy(checkpoint):
    """Transformers' tokens in float32, end-of-text masked."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    rows = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS,
            pad_token_id=0,
        )  # fmt: skip
        rows.append(output[0, len(prompt) :].tolist())
    return rows


@pytest.fixture(scope="module")
def table(checkpoint, tmp_path_factory):
    return {
        "protocol": 1,
        "cell": {"system": "llama.cpp", "residency": 1.0, "batch": 1},
        "model_path": str(export_gguf(checkpoint, tmp_path_factory.mktemp("gguf") / "model.gguf")),
        "model_format": "gguf",
        "prompts": PROMPTS,
        "decode_tokens": TOKENS,
        "device": "cpu",
        "threads": 1,
    }


WORKER = find_home(Path(__file__).parent).baselines / "llama_cpp" / "worker.py"


def test_greedy_tokens_are_transformers_tokens(python, table, greedy, run_worker):
    events, log = run_worker(WORKER, table, python=python)
    assert events[-1] == {"event": "done"}, events[-1]
    found = [[e["token"] for e in events if e["event"] == "token" and e["prompt"] == i] for i in range(len(PROMPTS))]
    assert found == greedy
    stats = {event["name"]: event for event in events if event["event"] == "stat"}
    assert stats["threads"]["value"] == 1
    assert stats["resident_bytes"]["value"] == 4 * 12 * 3 * 64 * 32 * 4
    assert "missing" in stats["hit_rate"]
    assert "main loop" in log or log == ""  # what llama.cpp logs is on stderr only


def test_refusals_leave_the_worker_running(python, table, run_worker):
    partly = table | {"cell": {"residency": 0.45}}
    long = table | {"decode_tokens": 512}
    folder = table | {"model_format": "hf"}
    events, _ = run_worker(WORKER, partly, long, folder, table | {"decode_tokens": 2}, python=python)
    assert [event["kind"] for event in events if event["event"] == "error"] == ["unsupported", "invalid", "invalid"]
    assert events[-1] == {"event": "done"}


def test_a_batch_decodes_the_same_tokens_where_ids_are_shown(python, table, greedy, run_worker):
    events, _ = run_worker(WORKER, table | {"cell": {"residency": 1.0, "batch": 4}}, python=python)
    if events[-1].get("kind") == "unsupported":
        pytest.skip("the full profile decodes one prompt at a time")
    for index, wanted in enumerate(greedy):
        tokens = [event["token"] for event in events if event["event"] == "token" and event["prompt"] == index]
        assert len(tokens) == TOKENS
        assert all(token in (None, right) for token, right in zip(tokens, wanted, strict=True))
