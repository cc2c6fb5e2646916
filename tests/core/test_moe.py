"""Protects the CPU kernel: close to float64, and bit-identical wherever the experts are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmoe.core.moe import moe_swiglu, reduce_contributions


class Case:
    """Random experts [E, ...] and routing of T tokens to K of them."""

    def __init__(self, seed, tokens=3, choices=4, experts=7, hidden=40, width=24):
        rng = np.random.default_rng(seed)
        self.experts = experts
        self.x = rng.standard_normal((tokens, hidden), dtype=np.float32)
        self.gate_up = rng.standard_normal((experts, 2 * width, hidden), dtype=np.float32) / hidden**0.5
        self.down = rng.standard_normal((experts, hidden, width), dtype=np.float32) / width**0.5
        self.index = np.stack([rng.permutation(experts)[:choices] for _ in range(tokens)]).astype(np.int32)
        self.weights = rng.random((tokens, choices), dtype=np.float32)

    def empty(self):
        return np.full((*self.index.shape, self.x.shape[1]), np.nan, dtype=np.float32)

    def run(self):
        contribution = self.empty()
        moe_swiglu(self.x, self.gate_up, self.down, self.index, self.weights, contribution)
        return contribution

    def reference(self):
        """In float64, written from the definition."""
        x, gate_up, down = (array.astype(np.float64) for array in (self.x, self.gate_up, self.down))
        out = np.empty(self.empty().shape)
        for token, choice in np.ndindex(*self.index.shape):
            expert = self.index[token, choice]
            gate, up = np.split(gate_up[expert] @ x[token], 2)
            out[token, choice] = self.weights[token, choice] * (down[expert] @ (gate / (1 + np.exp(-gate)) * up))
        return out


sizes = st.integers(1, 70)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 6), sizes, sizes)
def test_close_to_float64(seed, tokens, choices, hidden, width):
    case = Case(seed, tokens, choices, hidden=hidden, width=width)
    np.testing.assert_allclose(case.run(), case.reference(), rtol=2e-5, atol=2e-5)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(7, 12), sizes, sizes, st.integers(0, 15))
def test_bit_identical_in_any_slots_at_any_address(seed, slots, hidden, width, shift):
    case = Case(seed, hidden=hidden, width=width)
    place = np.random.default_rng(seed + 1).permutation(slots)[: case.experts].astype(np.int32)
    pools = []
    for weights in (case.gate_up, case.down):
        memory = np.zeros(slots * weights[0].size + shift, dtype=np.float32)
        pool = memory[shift:].reshape(slots, *weights.shape[1:])
        pool[place] = weights
        pools.append(pool)
    moved = case.empty()
    moe_swiglu(case.x, *pools, place[case.index], case.weights, moved)
    assert moved.tobytes() == case.run().tobytes()


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2), min_size=7, max_size=7))
def test_bit_identical_in_any_grouping(seed, group_of):
    case = Case(seed)
    grouped = case.empty()
    for group in range(3):
        chosen = np.where(np.array(group_of)[case.index] == group, case.index, -1).astype(np.int32)
        moe_swiglu(case.x, case.gate_up, case.down, chosen, case.weights, grouped)
    assert grouped.tobytes() == case.run().tobytes()


def test_bit_identical_for_one_token_and_for_many():
    case = Case(0, tokens=5)
    alone = case.empty()
    for token in range(5):
        rows = slice(token, token + 1)
        moe_swiglu(case.x[rows], case.gate_up, case.down, case.index[rows], case.weights[rows], alone[rows])
    assert alone.tobytes() == case.run().tobytes()


def test_skipped_rows_are_left_alone():
    case = Case(0)
    case.index[1, 2] = case.index[0, 0] = -1
    untouched = np.isnan(case.run()).all(-1)
    assert (untouched == (case.index < 0)).all()


def test_reduction_sums_in_order():
    contribution = np.array([[[1e8], [1.0], [-1e8], [3.0]]], dtype=np.float32)
    out = np.empty((1, 1), dtype=np.float32)
    reduce_contributions(contribution, out)
    assert out[0, 0] == np.float32(((1e8 + np.float32(1)) - 1e8) + 3)


def test_torch_tensors_pass_through():
    case = Case(3)
    tensors = [torch.from_numpy(array) for array in (case.x, case.gate_up, case.down, case.index, case.weights)]
    contribution, out = torch.zeros(3, 4, 40), torch.zeros(3, 40)
    moe_swiglu(*tensors, contribution)
    reduce_contributions(contribution, out)
    assert contribution.numpy().tobytes() == case.run().tobytes()
    np.testing.assert_allclose(out.numpy(), case.reference().sum(1), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "wrong", "error"),
    [
        ("x", lambda a: a[:2], ValueError),
        ("x", lambda a: a[:, :-1].copy(), ValueError),
        ("x", lambda a: a[:, ::2], TypeError),
        ("x", lambda a: a.astype(np.float64), TypeError),
        ("gate_up", lambda a: a[:, :-1].copy(), ValueError),
        ("gate_up", lambda a: a[:-1], ValueError),
        ("down", lambda a: a[:, :-1].copy(), ValueError),
        ("down", lambda a: a.astype(np.float16), TypeError),
        ("index", lambda a: a + 7, ValueError),
        ("weights", lambda a: a[:, :-1].copy(), ValueError),
    ],
)
def test_what_does_not_fit_is_refused(name, wrong, error):
    case = Case(0)
    setattr(case, name, wrong(getattr(case, name)))
    contribution = np.zeros((3, 4, 40), dtype=np.float32)
    with pytest.raises(error):
        moe_swiglu(case.x, case.gate_up, case.down, case.index, case.weights, contribution)
    assert (contribution == 0).all()


@pytest.mark.parametrize(("shape", "dtype"), [((3, 4, 39), "f4"), ((3, 3, 40), "f4"), ((3, 4, 40), "f8")])
def test_a_wrong_output_is_refused_rather_than_copied(shape, dtype):
    case = Case(0)
    with pytest.raises((ValueError, TypeError)):
        moe_swiglu(case.x, case.gate_up, case.down, case.index, case.weights, np.zeros(shape, dtype))
    with pytest.raises((ValueError, TypeError)):
        reduce_contributions(case.run(), np.zeros((3, 40 if dtype == "f8" else 38), dtype))
