"""Protects the Mamba2 mixer: equal to Transformers' in outputs and gradients, and to itself step by step."""

from __future__ import annotations

import pytest
import torch
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as TransformersMixer

from seqmoe.predictor.mamba2 import kernels
from seqmoe.predictor.mamba2.mixer import Mamba2Mixer, MixerShape
from seqmoe.predictor.mamba2.scan import chunked_scan
from seqmoe.predictor.mamba2.trunk import Mamba2Trunk

HIDDEN = 64


@pytest.fixture
def pair():
    """Our mixer and Transformers', with the same weights."""
    torch.manual_seed(0)
    config = Mamba2Config(
        hidden_size=HIDDEN, state_size=16, num_heads=8, head_dim=16, n_groups=1, expand=2, chunk_size=32,
        num_hidden_layers=1, conv_kernel=4, use_bias=False, use_conv_bias=True,
    )  # fmt: skip
    theirs = TransformersMixer(config, 0)
    ours = Mamba2Mixer(MixerShape(HIDDEN, head_dim=16, state_size=16))
    with torch.no_grad():
        for mine, other in _matching(ours, theirs):
            mine.copy_(other)
    return ours, theirs


def _matching(ours, theirs):
    return [
        (ours.in_proj.weight, theirs.in_proj.weight),
        (ours.out_proj.weight, theirs.out_proj.weight),
        (ours.conv_weight, theirs.conv1d.weight[:, 0]),
        (ours.conv_bias, theirs.conv1d.bias),
        (ours.dt_bias, theirs.dt_bias),
        (ours.A_log, theirs.A_log),
        (ours.D, theirs.D),
        (ours.norm_weight, theirs.norm.weight),
    ]


@pytest.mark.parametrize("time", [1, 5, 64, 150])
def test_outputs_equal_transformers(pair, time):
    ours, theirs = pair
    hidden = torch.randn(2, time, HIDDEN)
    expected = theirs(hidden)
    expected = expected[0] if isinstance(expected, tuple) else expected
    torch.testing.assert_close(ours(hidden), expected, atol=1e-5, rtol=1e-5)


def test_gradients_equal_transformers(pair):
    ours, theirs = pair
    hidden = torch.randn(2, 70, HIDDEN)
    expected = theirs(hidden)
    (expected[0] if isinstance(expected, tuple) else expected).square().mean().backward()
    ours(hidden).square().mean().backward()
    for mine, other in [
        (ours.in_proj.weight.grad, theirs.in_proj.weight.grad),
        (ours.conv_weight.grad, theirs.conv1d.weight.grad[:, 0]),
        (ours.dt_bias.grad, theirs.dt_bias.grad),
        (ours.A_log.grad, theirs.A_log.grad),
        (ours.D.grad, theirs.D.grad),
        (ours.norm_weight.grad, theirs.norm.weight.grad),
    ]:
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-3)


@torch.no_grad()
def test_steps_equal_the_sequence(pair):
    ours, _ = pair
    hidden = torch.randn(3, 90, HIDDEN)
    state = ours.new_state(3)
    steps = torch.stack([ours.step(hidden[:, i], state) for i in range(90)], 1)
    torch.testing.assert_close(steps, ours(hidden), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("cut", [1, 3, 40, 64])
def test_a_sequence_goes_on_from_its_state(pair, cut):
    ours, _ = pair
    hidden = torch.randn(2, 100, HIDDEN)
    state = ours.new_state(2)
    parts = torch.cat([ours(hidden[:, :cut], state), ours(hidden[:, cut:], state)], 1)
    torch.testing.assert_close(parts, ours(hidden), atol=1e-5, rtol=1e-5)
    after = ours.new_state(2)
    for i in range(100):
        ours.step(hidden[:, i], after)
    torch.testing.assert_close(state.scan, after.scan, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(state.window, after.window, atol=1e-6, rtol=1e-5)


def test_the_scan_is_the_recurrence_in_double_precision():
    generator = torch.Generator().manual_seed(1)
    x, b, c = (torch.randn(1, 130, *size, dtype=torch.float64, generator=generator) for size in ((2, 3), (4,), (4,)))
    dt = torch.rand(1, 130, 2, dtype=torch.float64, generator=generator)
    a = -torch.tensor([0.5, 3.0], dtype=torch.float64)
    state = torch.zeros(1, 2, 3, 4, dtype=torch.float64)
    expected = []
    for t in range(130):
        outer = torch.einsum("bhp,bn->bhpn", x[:, t] * dt[:, t, :, None], b[:, t])
        state = state * (dt[:, t] * a).exp()[..., None, None] + outer
        expected.append(torch.einsum("bhpn,bn->bhp", state, c[:, t]))
    y, after = chunked_scan(x, dt, a, b, c)
    # The carried state is float32 by design, whatever the inputs are.
    torch.testing.assert_close(y, torch.stack(expected, 1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after.double(), state, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_state_stays_at_its_address_and_comes_back():
    torch.manual_seed(2)
    trunk = Mamba2Trunk(HIDDEN, blocks=2).eval()
    state = trunk.new_state(1)
    addresses = [(mixer.window.data_ptr(), mixer.scan.data_ptr()) for mixer in state.mixers]
    trunk.prefill(torch.randn(1, 20, HIDDEN), state)
    before = state.snapshot()
    probe = torch.randn(1, HIDDEN)
    first = trunk.step(probe, state)
    for _ in range(7):
        trunk.step(torch.randn(1, HIDDEN), state)
    state.restore(before)
    assert torch.equal(trunk.step(probe, state), first)
    assert [(mixer.window.data_ptr(), mixer.scan.data_ptr()) for mixer in state.mixers] == addresses


@torch.no_grad()
def test_states_after_positions_are_those_of_each_prefix():
    torch.manual_seed(3)
    trunk = Mamba2Trunk(HIDDEN, blocks=2).eval()
    hidden, probe = torch.randn(50, HIDDEN), torch.randn(1, HIDDEN)
    positions = [0, 1, 17, 49]
    [(group, states)] = list(trunk.states_after(hidden, positions))
    assert group == positions
    together = trunk.step(probe.expand(4, -1), states)
    for row, position in enumerate(positions):
        alone = trunk.new_state(1)
        trunk(hidden[None, : position + 1], alone)
        torch.testing.assert_close(together[row], trunk.step(probe, alone)[0], atol=1e-5, rtol=1e-5)


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="head_dim = 64"):
        MixerShape(40)


@pytest.mark.skipif(not torch.cuda.is_available() or kernels._kernels() is None, reason="needs a GPU and mamba-ssm")
@torch.no_grad()
def test_kernels_equal_plain_torch():
    torch.manual_seed(4)
    mixer = Mamba2Mixer(MixerShape(128)).cuda()
    hidden = torch.randn(2, 200, 128, device="cuda")
    fast = mixer(hidden)
    state = mixer.new_state(2)
    steps = torch.stack([mixer.step(hidden[:, i], state) for i in range(200)], 1)
    slow = mixer.cpu()(hidden.cpu())
    torch.testing.assert_close(fast.cpu(), slow, atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(steps.cpu(), slow, atol=2e-3, rtol=2e-3)
