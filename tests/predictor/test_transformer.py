"""Protects the Transformer probe's trunk: causal, and the same whole, in parts, step by step and from any prefix."""

from __future__ import annotations

import torch

from seqmoe.predictor.attention import AttentionTrunk

HIDDEN = 128


def _trunk():
    torch.manual_seed(0)
    return AttentionTrunk(HIDDEN, blocks=2).eval()


@torch.no_grad()
def test_the_future_changes_nothing():
    trunk, hidden = _trunk(), torch.randn(2, 30, HIDDEN)
    changed = hidden.clone()
    changed[:, 20:] = torch.randn(2, 10, HIDDEN)
    torch.testing.assert_close(trunk(hidden)[:, :20], trunk(changed)[:, :20], atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_steps_and_parts_equal_the_sequence():
    trunk, hidden = _trunk(), torch.randn(2, 40, HIDDEN)
    whole = trunk(hidden)
    state = trunk.new_state(2, capacity=4)  # it must grow
    steps = torch.stack([trunk.step(hidden[:, i], state) for i in range(40)], 1)
    torch.testing.assert_close(steps, whole, atol=1e-5, rtol=1e-5)
    state = trunk.new_state(2)
    trunk.prefill(hidden[:, :25], state)
    torch.testing.assert_close(trunk.prefill(hidden[:, 25:], state), whole[:, -1], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_restoring_forgets_what_came_after():
    trunk, hidden, probe = _trunk(), torch.randn(1, 12, HIDDEN), torch.randn(1, HIDDEN)
    state = trunk.new_state(1)
    trunk.prefill(hidden, state)
    before = state.snapshot()
    first = trunk.step(probe, state)
    trunk.step(torch.randn(1, HIDDEN), state)
    state.restore(before)
    torch.testing.assert_close(trunk.step(probe, state), first)


@torch.no_grad()
def test_states_after_positions_are_those_of_each_prefix():
    trunk, hidden, probe = _trunk(), torch.randn(20, HIDDEN), torch.randn(1, HIDDEN)
    positions = [0, 7, 19]
    [(group, states)] = list(trunk.states_after(hidden, positions))
    together = trunk.step(probe.expand(3, -1), states)
    assert group == positions
    for row, position in enumerate(positions):
        alone = trunk.new_state(1)
        trunk.prefill(hidden[None, : position + 1], alone)
        torch.testing.assert_close(together[row], trunk.step(probe, alone)[0], atol=1e-5, rtol=1e-5)
