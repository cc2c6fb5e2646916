"""Protects the Transformers wrapper: greedy tokens of the model's own forward pass, one by one, end-of-text masked."""

from __future__ import annotations

import importlib
import itertools

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

TOKENS, END = 6, 3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(1)
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_experts=6, num_experts_per_tok=2,
        eos_token_id=END, max_position_embeddings=64,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@torch.inference_mode()
def greedy(checkpoint, prompt):
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = list(prompt)
    for _ in range(TOKENS):
        logits = model(torch.tensor([ids])).logits[0, -1]
        logits[END] = -torch.inf
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


def test_tokens_are_the_models_own(run_worker, request_table, checkpoint):
    worker = importlib.import_module("baselines.transformers.worker").__file__
    request = request_table | {"model_path": str(checkpoint), "decode_tokens": TOKENS}
    batch = request | {"cell": {"residency": 1.0, "batch": 2}}
    partly = request | {"cell": {"residency": 0.5, "batch": 1}}
    events, _ = run_worker(worker, request, batch, partly)
    errors = [event["kind"] for event in events if event["event"] == "error"]
    assert errors == ["unsupported", "unsupported"]
    tokens = [event for event in events if event["event"] == "token"]
    for index, prompt in enumerate(request["prompts"]):
        mine = [event for event in tokens if event["prompt"] == index]
        assert [event["token"] for event in mine] == greedy(checkpoint, prompt)
        assert all(a["time_ns"] < b["time_ns"] for a, b in itertools.pairwise(mine))
    stats = {event["name"]: event.get("value", event.get("missing")) for event in events if event["event"] == "stat"}
    assert (stats["dtype"], stats["end_of_text"]) == ("float32", "masked")
    assert "no expert cache" in stats["hit_rate"]
