"""Protects compute transparency: Transformers' experts functions give a pool's answer when slot ids are expert ids."""

from __future__ import annotations

import pytest
import torch
from expert_reference import random_weights, reference

from seqmoe.runtime.kernels.library import experts_function
from seqmoe.spec.errors import InputError


@pytest.mark.parametrize("name", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize(("activation", "bias"), [("swiglu", False), ("swiglu_oai", True), ("swiglu_clamped", False)])
def test_a_library_computes_on_the_pool_as_it_is(name, tokens, activation, bias):
    torch.manual_seed(tokens)
    weights = random_weights("dense", 9, 64, 48, bias, activation)
    hidden_states, top_k_weights = torch.randn(tokens, 64).bfloat16(), torch.rand(tokens, 4)
    slot_ids = torch.stack([torch.randperm(9)[:4] for _ in range(tokens)]).int()
    slot_ids[0, 1] = -1
    out = experts_function(name, weights, slot_ids.numel())(hidden_states, slot_ids, top_k_weights)
    expected = reference(weights, hidden_states, slot_ids, top_k_weights)
    assert out.dtype == torch.bfloat16
    assert (out - expected).abs().max() < 0.02 * expected.abs().max()


def test_unused_slots_are_not_read():
    weights = random_weights("dense", 4, 32, 16, dtype=torch.float32)
    weights.gate_up[2:], weights.down[2:] = float("nan"), float("nan")
    arguments = torch.randn(2, 32), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32), torch.rand(2, 2)
    for name in ("grouped_mm", "batched_mm"):
        out = experts_function(name, weights, 4)(*arguments)
        assert (out - reference(weights, *arguments)).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "format"), [("grouped", "dense"), ("grouped_mm", "mxfp4"), ("batched_mm", "fp8")])
def test_what_is_not_computed_is_refused(name, format):
    with pytest.raises(InputError, match="experts kernel"):
        experts_function(name, random_weights(format, 2, 32, 32), 4)
