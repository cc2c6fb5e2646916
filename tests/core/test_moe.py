"""Protects the CPU kernel's answer: close to float64 and to Transformers' experts, for every set of instructions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from moe_case import ACTIVATIONS, MoeCase
from transformers import DeepseekV4Config, GptOssConfig
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Experts
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from seqmoe.core.moe import instruction_sets, moe_experts, reduce_contributions

sizes = st.integers(1, 70)
kinds = st.fixed_dictionaries(
    {"bfloat16": st.booleans(), "activation": st.sampled_from(sorted(ACTIVATIONS)), "bias": st.booleans()}
)
# Of sums of float32 products of size 1; bfloat16 weights are as exact, since the reference has the same ones.
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


@pytest.mark.parametrize("instructions", instruction_sets())
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 6), sizes, sizes, kinds)
def test_close_to_float64(instructions, seed, tokens, choices, hidden, width, kind):
    case = MoeCase(seed, tokens, choices, hidden=hidden, width=width, **kind)
    np.testing.assert_allclose(case.run(instructions=instructions), case.reference(), **CLOSE)


@pytest.mark.parametrize("instructions", instruction_sets())
def test_a_prompt_of_more_tokens_than_go_together(instructions):
    case = MoeCase(1, tokens=100, choices=2, experts=3, hidden=96, width=64, bfloat16=True)
    np.testing.assert_allclose(case.run(instructions=instructions), case.reference(), **CLOSE)


@pytest.mark.parametrize("instructions", instruction_sets())
@pytest.mark.parametrize("activation", ["swiglu", "swiglu_clamped", "swiglu_oai"])
def test_activation_over_the_whole_range(instructions, activation):
    """Through identity matrices, gates from -200 to 200: saturated, clamped, and where the exponential overflows."""
    gate = np.concatenate([np.linspace(-200, 200, 4001), [0.0, -88.5, 88.5, -104.0]]).astype(np.float32)
    case = MoeCase(0, tokens=len(gate), choices=1, experts=1, hidden=2, width=1, activation=activation)
    case.x = np.stack([gate, np.full_like(gate, 0.5)], axis=1)
    case.gate_up, case.down = np.eye(2, dtype=np.float32)[None], np.ones((1, 2, 1), dtype=np.float32)
    # An exponent near 80 is known to 4e-6 in float32, and so is the exponential.
    np.testing.assert_allclose(case.run(instructions=instructions), case.reference(), rtol=1e-5, atol=1e-35)


def test_a_nan_stays_a_nan():
    for activation in ACTIVATIONS:
        case = MoeCase(0, activation=activation)
        case.x[1, 3] = np.nan
        assert (np.isnan(case.run(np.zeros_like(case.poisoned()))).all(-1) == [[False], [True], [False]]).all()


def _experts_of(module, case):
    """Give Transformers' experts the weights of a case, in the layout they keep."""
    module = module.eval()
    with torch.no_grad():
        for name in ("gate_up", "down"):
            weights = torch.from_numpy(getattr(case, name))
            if isinstance(module, GptOssExperts):
                half = weights.shape[1] // 2
                order = torch.arange(2 * half).view(2, half).T.reshape(-1) if name == "gate_up" else slice(None)
                getattr(module, f"{name}_proj").copy_(weights[:, order].transpose(1, 2))
                getattr(module, f"{name}_proj_bias").copy_(torch.from_numpy(getattr(case, f"{name}_bias"))[:, order])
            else:
                getattr(module, f"{name}_proj").copy_(weights)
    return module


@pytest.mark.parametrize(
    ("activation", "module", "config"),
    [
        ("swiglu_oai", GptOssExperts, GptOssConfig),
        ("swiglu_clamped", DeepseekV4Experts, DeepseekV4Config),
    ],
)
def test_same_as_the_experts_of_transformers(activation, module, config):
    case = MoeCase(5, activation=activation, bias=activation == "swiglu_oai")
    settings_of = config(hidden_size=40, num_local_experts=7, swiglu_limit=case.limit)
    settings_of.intermediate_size = settings_of.moe_intermediate_size = 24
    experts = _experts_of(module(settings_of), case)
    with torch.no_grad():
        theirs = experts.forward(
            torch.from_numpy(case.x), torch.from_numpy(case.index).long(), torch.from_numpy(case.weights)
        )
    ours = np.empty_like(case.x)
    reduce_contributions(case.run(), ours)
    np.testing.assert_allclose(ours, theirs.numpy(), **CLOSE)


def test_torch_tensors_pass_through():
    case = MoeCase(3, bfloat16=True)
    x, index, weights = (torch.from_numpy(array) for array in (case.x, case.index, case.weights))
    gate_up, down = (torch.from_numpy(array).view(torch.bfloat16) for array in (case.gate_up, case.down))
    contribution, out = torch.zeros(3, 4, 40), torch.zeros(3, 40)
    moe_experts(x, gate_up, down, index, weights, contribution)
    reduce_contributions(contribution, out)
    assert contribution.numpy().tobytes() == case.run().tobytes()
    np.testing.assert_allclose(out.numpy(), case.reference().sum(1), **CLOSE)


def test_reduction_sums_in_order():
    contribution = np.array([[[1e8], [1.0], [-1e8], [3.0]]], dtype=np.float32)
    out = np.empty((1, 1), dtype=np.float32)
    reduce_contributions(contribution, out)
    large, one, three = np.float32(1e8), np.float32(1), np.float32(3)
    assert out[0, 0] == ((large + one) - large) + three
