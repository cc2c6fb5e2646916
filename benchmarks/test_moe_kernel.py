"""CPU MoE of one decode token, top-8 of 128 experts (hidden 512, width 192): through slots, and as PyTorch would.

The floor is one pass over the bytes of the eight experts, as the sum of that many float32.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqmoe.core.moe import moe_swiglu, reduce_contributions

EXPERTS, TOP_K, HIDDEN, WIDTH = 128, 8, 512, 192


@pytest.fixture(scope="module")
def layer():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    gate_up = torch.randn(EXPERTS, 2 * WIDTH, HIDDEN, generator=generator) / HIDDEN**0.5
    down = torch.randn(EXPERTS, HIDDEN, WIDTH, generator=generator) / WIDTH**0.5
    hidden = torch.randn(1, HIDDEN, generator=generator)
    # A new random choice each call, so that no expert stays in a CPU cache.
    choices = [torch.randperm(EXPERTS, generator=generator)[:TOP_K] for _ in range(64)]
    return gate_up, down, hidden, torch.full((1, TOP_K), 1 / TOP_K), choices


def _linear_loop(gate_up, down, hidden, weights, chosen):
    out = torch.zeros_like(hidden)
    for rank, expert in enumerate(chosen.tolist()):
        gate, up = torch.nn.functional.linear(hidden, gate_up[expert]).chunk(2, -1)
        out += weights[0, rank] * torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, down[expert])
    return out


def _gather_bmm(gate_up, down, hidden, weights, chosen):
    gate, up = torch.bmm(gate_up[chosen], hidden.T.expand(TOP_K, -1, -1)).chunk(2, 1)
    out = torch.bmm(down[chosen], torch.nn.functional.silu(gate) * up)[..., 0]
    return weights @ out


def _through_slots(gate_up, down, hidden, weights, chosen):
    contribution = torch.empty(1, TOP_K, HIDDEN)
    out = torch.empty_like(hidden)
    moe_swiglu(hidden, gate_up, down, chosen.to(torch.int32).numpy()[None], weights, contribution)
    reduce_contributions(contribution, out)
    return out


def _memory_floor(gate_up, down, hidden, weights, chosen):
    for expert in chosen.tolist():
        gate_up[expert].sum()
        down[expert].sum()


@pytest.mark.benchmark(group="MoE of one token, fp32")
@pytest.mark.parametrize(
    "way", [_through_slots, _linear_loop, _gather_bmm, _memory_floor], ids=lambda way: way.__name__[1:]
)
def test_moe_of_one_token(benchmark, layer, way):
    *inputs, choices = layer
    turn = iter(range(10**9))
    result = benchmark(lambda: way(*inputs, choices[next(turn) % len(choices)]))
    if result is not None:
        expected = _linear_loop(*inputs, choices[(next(turn) - 1) % len(choices)])
        assert np.allclose(result, expected, atol=1e-4)
