"""Protects the training-time expert computation: without dropped tokens it equals Transformers' eager experts."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from seqmoe.reference import capacity_experts


def _gradients(model, ids):
    model.zero_grad()
    logits = model(ids).logits
    logits.square().mean().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_outputs_and_gradients_equal_eager():
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, moe_intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config)
    ids = torch.randint(0, 64, (2, 20))
    model.set_experts_implementation("eager")
    expected, expected_gradients = _gradients(model, ids)
    model.set_experts_implementation(capacity_experts.register(capacity_factor=3.0))
    got, gradients = _gradients(model, ids)
    assert torch.allclose(got, expected, atol=1e-5)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected_gradients[name], atol=1e-5), name


def test_what_exceeds_the_capacity_is_dropped():
    class Module:
        gate_up_proj = torch.ones(2, 2, 1)
        down_proj = torch.ones(2, 1, 1)

    name = capacity_experts.register(capacity_factor=1.0)
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    hidden = torch.ones(4, 1)
    everyone_to_zero = torch.zeros(4, 1, dtype=torch.long)
    out = ALL_EXPERTS_FUNCTIONS[name](Module(), hidden, everyone_to_zero, torch.ones(4, 1))
    one = float(torch.nn.functional.silu(torch.tensor(1.0)))
    assert out[:, 0].tolist() == pytest.approx([one, one, 0, 0])
