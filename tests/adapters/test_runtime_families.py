"""Protects the families that the runtime takes: its decoding equals a plain forward, offloaded and at full load."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AutoTokenizer

from seqmoe.runtime.engine import Engine
from seqmoe.spec.system import system

PROMPT = list(range(1, 20))
_SHARED = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 512, "num_experts_per_tok": 3, "initializer_range": 0.3, "eos_token_id": 256,
    "pad_token_id": 0,
}  # fmt: skip
CONFIGS = {
    "olmoe": lambda: transformers.OlmoeConfig(**_SHARED, intermediate_size=32, num_experts=12),
    "mixtral": lambda: transformers.MixtralConfig(**_SHARED, intermediate_size=32, num_local_experts=12),
    "qwen3_5_moe": lambda: transformers.Qwen3_5MoeTextConfig(
        **_SHARED, head_dim=16, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=12,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_decoding_equals_a_plain_forward(name, tiny_checkpoint, tmp_path):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    engine = Engine.load(tmp_path)
    engine.place_full()
    full = engine.generate(PROMPT, 10, keep_logits=True)
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT + full.tokens[:-1]])).logits[0, len(PROMPT) - 1 :]
    assert torch.allclose(torch.stack(full.logits), expected, atol=1e-3)
    engine.place(system("lru"), 0.45, None, None)
    offloaded = engine.generate(PROMPT, 10, keep_logits=True)
    assert torch.allclose(torch.stack(offloaded.logits), torch.stack(full.logits), atol=1e-4)
    engine.close()
