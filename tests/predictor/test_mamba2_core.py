"""Protects the Mamba2 step in the core: equal to PyTorch and to Transformers' mixer, undisturbed by rollouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as TransformersMixer

from seqmoe.core.moe import instruction_sets
from seqmoe.predictor.base import step_by_step
from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.mamba2.core import stepper_of
from seqmoe.predictor.mamba2.mixer import Mamba2Mixer
from seqmoe.predictor.network import NetworkShape, SequenceNetwork
from seqmoe.predictor.psi import psi_of_logits
from seqmoe.predictor.running import CoreRunning, TorchRunning, running
from seqmoe.predictor.trained import TrainedPredictor

LAYERS, EXPERTS, TOP_K = 3, 21, 4
LINES = Confidence(np.array([[1.1, 1.3], [0.9, 1.2], [0.8, 1.1]], dtype=np.float32))


def network(hidden=64, blocks=2, experts=EXPERTS, top_k=TOP_K, **options) -> SequenceNetwork:
    torch.manual_seed(0)
    made = SequenceNetwork(NetworkShape("mamba2", LAYERS, experts, top_k, hidden, blocks, **options)).eval()
    with torch.no_grad():  # nothing that is one, zero or equal for all
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


def routing(steps: int, layers=LAYERS, batch=1) -> np.ndarray:
    """Activations float32 [steps, layers, experts] of random experts and weights, mean over a batch."""
    rng = np.random.default_rng(1)
    rows = np.zeros((batch, steps, layers, EXPERTS), dtype=np.float32)
    chosen = rng.permuted(np.tile(np.arange(EXPERTS), (batch, steps, layers, 1)), axis=-1)[..., :TOP_K]
    np.put_along_axis(rows, chosen, rng.dirichlet(np.ones(TOP_K), chosen.shape[:-1]).astype(np.float32), -1)
    return rows.mean(0)


def close(mine, other, rtol=1e-5) -> None:
    np.testing.assert_allclose(mine, other, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("instructions", instruction_sets())
@pytest.mark.parametrize("batch", [1, 5])
def test_a_long_sequence_equals_pytorch(instructions, batch):
    made = network()
    core, torch_ = CoreRunning(made, stepper_of(made, instructions)), TorchRunning(made, True)
    for step, row in enumerate(routing(300, batch=batch)):
        core.observe(row)
        torch_.observe(row)
        lookahead = 8 if step % 20 == 0 else 0
        (mine, use), (other, other_use) = core.forecast(lookahead, LINES), torch_.forecast(lookahead, LINES)
        close(mine[0], other[0])
        close(use, other_use)
        close(mine, other, rtol=5e-5)  # every step fed back adds its rounding


@pytest.mark.parametrize("experts, top_k", [(3, 3), (8, 1), (16, 2), (70, 9)])
def test_any_number_of_experts_equals_pytorch(experts, top_k):
    made = network(hidden=32, blocks=1, experts=experts, top_k=top_k, use_head=False)
    core, torch_ = running(made, True), TorchRunning(made, True)
    assert isinstance(core, CoreRunning)
    row = np.zeros((LAYERS, experts), dtype=np.float32)
    row[:, :top_k] = 1 / top_k
    for _ in range(20):
        core.observe(row)
        torch_.observe(row)
    mine, use = core.forecast(5, LINES)
    close(mine, torch_.forecast(5, LINES)[0], rtol=5e-5)
    assert use is None and mine.shape == (6, LAYERS, experts)


@torch.no_grad()
def test_logits_equal_those_through_transformers_mixer():
    made = network(blocks=1)
    [ours], shape = made.trunk.mixers, made.trunk.mixers[0].shape
    config = Mamba2Config(
        hidden_size=shape.hidden, state_size=shape.state_size, num_heads=shape.heads, head_dim=shape.head_dim,
        n_groups=1, expand=shape.expand, chunk_size=32, num_hidden_layers=1, conv_kernel=shape.kernel, use_bias=False,
        use_conv_bias=True,
    )  # fmt: skip
    theirs = TransformersMixer(config, 0).eval()
    theirs.load_state_dict(_renamed(ours))
    activation = routing(150)
    hidden = made.enter(torch.from_numpy(activation).flatten(1) * TOP_K)[None]
    mixed = theirs(torch.nn.functional.rms_norm(hidden, (shape.hidden,), made.trunk.norms[0]))
    hidden = hidden + (mixed[0] if isinstance(mixed, tuple) else mixed)
    logits = made.leave(torch.nn.functional.rms_norm(hidden, (shape.hidden,), made.trunk.norms[1]))[0]
    stepper = stepper_of(made)
    for row, expected in zip(activation, logits, strict=True):
        stepper.observe(row)
        np.testing.assert_allclose(stepper.logits.ravel(), expected, rtol=1e-4, atol=1e-5)


def _renamed(ours: Mamba2Mixer) -> dict[str, torch.Tensor]:
    state = ours.state_dict()
    names = {"conv_weight": "conv1d.weight", "conv_bias": "conv1d.bias", "norm_weight": "norm.weight"}
    return {names.get(k, k): v[:, None] if k == "conv_weight" else v for k, v in state.items()}


def test_a_rollout_is_psi_fed_back_and_leaves_no_trace():
    made = network()
    stepper, follower = stepper_of(made), stepper_of(made)
    addresses = [part.ctypes.data for pair in stepper.states for part in pair]
    for row in routing(30):
        stepper.observe(row)
        follower.observe(row)
    before = [part.copy() for pair in stepper.states for part in pair] + [stepper.logits.copy(), stepper.use.copy()]
    forecast = stepper.forecast(6, LINES.lines)
    after = [part for pair in stepper.states for part in pair] + [stepper.logits, stepper.use]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    assert np.array_equal(forecast, stepper.forecast(6, LINES.lines))
    for step, row in enumerate(forecast):
        close(row, LINES.probability(torch.from_numpy(follower.logits), step))
        follower.observe(psi_of_logits(follower.logits, TOP_K))
    assert [part.ctypes.data for pair in stepper.states for part in pair] == addresses


def test_a_prompt_at_once_equals_its_steps_and_a_reset_forgets_it():
    made = network()
    at_once, steps, fresh = (CoreRunning(made, stepper_of(made)) for _ in range(3))
    activation = routing(90)
    for row in activation[:70]:
        steps.observe(row)
    at_once.prefill(activation[:70])
    for row in activation[70:]:
        for each in (at_once, steps):
            each.observe(row)
        for mine, other in zip(at_once.forecast(3, LINES), steps.forecast(3, LINES), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4)
    at_once.reset()
    for each in (at_once, fresh):
        each.observe(activation[0])
    assert np.array_equal(at_once.forecast(3, LINES)[0], fresh.forecast(3, LINES)[0])


def test_the_predictor_steps_in_the_core_as_its_sequences_do_in_pytorch():
    ranges = ((0, LAYERS), (LAYERS, 2 * LAYERS))
    predictor = TrainedPredictor("mamba2", ranges, [network(), network(blocks=1)], [LINES, LINES])
    activation = routing(40, layers=2 * LAYERS)
    _, expected = predictor.forecast_sequence(activation, 4, stride=3)
    _, stepped = step_by_step(predictor, activation, 4, stride=3)
    assert all(isinstance(each, CoreRunning) for each in predictor._running)
    np.testing.assert_allclose(stepped, expected, rtol=1e-4)


def test_what_the_core_cannot_do_stays_in_pytorch():
    assert isinstance(running(network(), psi=False), TorchRunning)
    assert isinstance(running(network(ahead=2), psi=True), TorchRunning)
    assert stepper_of(SequenceNetwork(NetworkShape("attention", LAYERS, EXPERTS, TOP_K, 64, 1))) is None
    assert stepper_of(network().double()) is None


@pytest.mark.parametrize("instructions", ["", "sse9"])
def test_what_does_not_fit_is_refused(instructions):
    if instructions:
        with pytest.raises(ValueError, match="not 'sse9'"):
            stepper_of(network(), instructions)
        return
    stepper = stepper_of(network())
    with pytest.raises(ValueError, match=r"activation must be \[layers, experts\]"):
        stepper.observe(np.zeros((LAYERS + 1, EXPERTS), dtype=np.float32))
    with pytest.raises(TypeError):
        stepper.observe(np.zeros((LAYERS, EXPERTS)))
    with pytest.raises(ValueError, match="at least one step"):
        stepper.forecast(2, np.zeros((0, 2), dtype=np.float32))
