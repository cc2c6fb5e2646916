"""Protects that offloading changes no bit: of any row [t, k], in any slot, shared by any tokens, in any grouping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moe_case import ACTIVATIONS, MoeCase

from seqmoe.core.moe import instruction_sets

sizes = st.integers(1, 70)
each_set = pytest.mark.parametrize("instructions", instruction_sets())
each_type = pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])


@each_set
@each_type
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(7, 12), sizes, sizes, st.integers(0, 15))
def test_in_any_slots_at_any_address(instructions, bfloat16, seed, slots, hidden, width, shift):
    case = MoeCase(seed, hidden=hidden, width=width, bfloat16=bfloat16, bias=True)
    place = np.random.default_rng(seed + 1).permutation(slots)[: case.experts].astype(np.int32)
    pools = {}
    for name in ("gate_up", "down", "gate_up_bias", "down_bias"):
        weights = getattr(case, name)
        memory = np.zeros(slots * weights[0].size + shift, dtype=weights.dtype)
        pools[name] = memory[shift:].reshape(slots, *weights.shape[1:])
        pools[name][place] = weights
    moved = case.run(instructions=instructions, index=place[case.index], **pools)
    assert moved.tobytes() == case.run(instructions=instructions).tobytes()


@each_set
@each_type
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2), min_size=7, max_size=7))
def test_in_any_grouping(instructions, bfloat16, seed, group_of):
    case = MoeCase(seed, tokens=6, bfloat16=bfloat16)
    grouped = case.poisoned()
    for group in range(3):
        chosen = np.where(np.array(group_of)[case.index] == group, case.index, -1).astype(np.int32)
        case.run(grouped, instructions, index=chosen)
    assert grouped.tobytes() == case.run(instructions=instructions).tobytes()


@each_set
@each_type
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 8, 17, 40])
def test_for_one_token_and_for_many(instructions, bfloat16, tokens):
    """Three experts for all tokens, so that they share them in tiles of every size."""
    case = MoeCase(tokens, tokens=tokens, choices=2, experts=3, hidden=67, width=45, bfloat16=bfloat16, bias=True)
    alone = case.poisoned()
    for token in range(tokens):
        rows = slice(token, token + 1)
        case.run(alone[rows], instructions, x=case.x[rows], index=case.index[rows], weights=case.weights[rows])
    assert alone.tobytes() == case.run(instructions=instructions).tobytes()


@settings(deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 9), sizes, sizes, st.booleans(), st.sampled_from(sorted(ACTIVATIONS))
)  # fmt: skip
def test_avx512_and_avx2_agree(seed, tokens, hidden, width, bfloat16, activation):
    if not {"avx512", "avx2"} <= set(instruction_sets()):
        pytest.skip("needs a CPU with AVX-512")
    case = MoeCase(seed, tokens, hidden=hidden, width=width, bfloat16=bfloat16, activation=activation, bias=True)
    assert case.run(instructions="avx512").tobytes() == case.run(instructions="avx2").tobytes()


def test_the_fastest_set_is_the_one_used():
    case = MoeCase(0)
    assert case.run().tobytes() == case.run(instructions=instruction_sets()[0]).tobytes()
