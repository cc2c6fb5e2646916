"""What a forecast costs per token, in the core, in PyTorch and through Transformers' Mamba2 mixer.

The floor of a step is one pass over its weights and its state, as the sum of that many float32. That of a rollout is
one for each of its steps, without the matrices that it need not read: the input's, of which few columns are active, and
the head of discounted use, which is read once.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DynamicCache, Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as TransformersMixer

from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.mamba2.core import stepper_of
from seqmoe.predictor.mamba2.mixer import Mamba2Mixer, MixerShape
from seqmoe.predictor.network import NetworkShape, SequenceNetwork, feedback
from seqmoe.predictor.running import CoreRunning, Running, TorchRunning

# GPT-OSS-20B's routing, and the sizes that training chooses for it: two predictors of half the layers each.
LAYERS, EXPERTS, TOP_K, HIDDEN, LOOKAHEAD = 24, 32, 4, 384, 8
RANGES = ((0, LAYERS // 2), (LAYERS // 2, LAYERS))


def _peer(way: str):
    return pytest.param(way, marks=pytest.mark.peer)


def _transformers_mixer(ours: Mamba2Mixer) -> TransformersMixer:
    shape = ours.shape
    config = _config(shape)
    theirs = TransformersMixer(config, 0).eval()
    with torch.no_grad():
        theirs.in_proj.weight.copy_(ours.in_proj.weight)
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
        theirs.conv1d.weight[:, 0].copy_(ours.conv_weight)
        theirs.conv1d.bias.copy_(ours.conv_bias)
        theirs.norm.weight.copy_(ours.norm_weight)
        for name in ("dt_bias", "A_log", "D"):
            getattr(theirs, name).copy_(getattr(ours, name))
    return theirs


def _config(shape: MixerShape) -> Mamba2Config:
    return Mamba2Config(
        hidden_size=shape.hidden, state_size=shape.state_size, num_heads=shape.heads, head_dim=shape.head_dim,
        n_groups=1, expand=shape.expand, chunk_size=64, num_hidden_layers=1, conv_kernel=shape.kernel, use_bias=False,
        use_conv_bias=True,
    )  # fmt: skip


class _TransformersMixers:
    """The same mixer through Transformers' module and cache."""

    def __init__(self, ours: Mamba2Mixer) -> None:
        self._mixer = _transformers_mixer(ours)
        self._cache = DynamicCache(config=_config(ours.shape))

    def step(self, hidden: torch.Tensor) -> torch.Tensor:
        out = self._mixer(hidden[:, None], cache=self._cache)
        return (out[0] if isinstance(out, tuple) else out)[:, 0]

    def snapshot(self):
        return [(name, value.clone()) for name, value in self._tensors()]

    def restore(self, snapshot) -> None:
        for (_, value), (_, past) in zip(self._tensors(), snapshot, strict=True):
            value.copy_(past)

    def _tensors(self):
        for name, value in sorted(vars(self._cache.layers[0]).items()):
            tensors = value.items() if isinstance(value, dict) else [(0, value)]
            for key, tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    yield f"{name}.{key}", tensor


@pytest.mark.benchmark(group="one Mamba2 step")
@pytest.mark.parametrize("hidden", [256, 384, 512])
@pytest.mark.parametrize("way", ["ours", _peer("transformers"), _peer("floor")])
@torch.inference_mode()
def test_step(benchmark, way, hidden):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours = Mamba2Mixer(MixerShape(hidden)).eval()
    theirs, state = _TransformersMixers(ours), ours.new_state(1)
    inputs = torch.randn(8, 1, hidden)
    for row in inputs:  # the same outputs, before anything is timed
        torch.testing.assert_close(ours.step(row, state), theirs.step(row), atol=1e-5, rtol=1e-4)
    if way == "ours":
        benchmark(lambda: ours.step(inputs[0], state))
    elif way == "transformers":
        benchmark(lambda: theirs.step(inputs[0]))
    else:
        numbers = [*ours.parameters(), state.scan]
        benchmark(lambda: [tensor.sum() for tensor in numbers])


@pytest.fixture(scope="module")
def networks() -> list[SequenceNetwork]:
    torch.manual_seed(0)
    return [
        SequenceNetwork(NetworkShape("mamba2", last - first, EXPERTS, TOP_K, HIDDEN, 1)).eval()
        for first, last in RANGES
    ]


class _ThroughTransformers:
    """A network whose mixer is Transformers', with the same rollout."""

    def __init__(self, network: SequenceNetwork) -> None:
        self._network, self._mixer = network, _TransformersMixers(network.trunk.mixers[0])

    def observe(self, activation: np.ndarray) -> None:
        self._logits = self._step(torch.from_numpy(activation[None]))

    def forecast(self, lookahead: int, confidence: Confidence) -> tuple[np.ndarray, None]:
        logits, before = self._logits, self._mixer.snapshot()
        rows = [confidence.probability(logits, 0)[0]]
        for step in range(1, lookahead + 1):
            logits = self._step(feedback(logits, TOP_K))
            rows.append(confidence.probability(logits, step)[0])
        self._mixer.restore(before)
        return torch.stack(rows).numpy(), None

    def _step(self, read: torch.Tensor) -> torch.Tensor:
        trunk = self._network.trunk
        hidden = self._network._embed(read)
        hidden = hidden + self._mixer.step(trunk._norm(0, hidden))
        return self._network._predict(trunk._norm(-1, hidden)).logits


def _follower(way: str, network: SequenceNetwork) -> Running | _ThroughTransformers:
    if way == "transformers":
        return _ThroughTransformers(network)
    return TorchRunning(network, True) if way == "pytorch" else CoreRunning(network, stepper_of(network))


def _activation() -> np.ndarray:
    rng = np.random.default_rng(0)
    row = np.zeros((LAYERS, EXPERTS), dtype=np.float32)
    chosen = rng.permuted(np.tile(np.arange(EXPERTS), (LAYERS, 1)), axis=1)[:, :TOP_K]
    np.put_along_axis(row, chosen, 1 / TOP_K, 1)
    return row


@pytest.mark.benchmark(group="a step and a rollout of eight, two networks, per token")
@pytest.mark.parametrize("way", ["core", "pytorch", _peer("transformers"), _peer("floor"), "discounted_use"])
@torch.inference_mode()
def test_forecast(benchmark, networks, way):
    torch.set_num_threads(1)
    row, confidence = _activation(), Confidence.uncalibrated(TOP_K)

    def forecasts(followers, lookahead: int) -> list[np.ndarray]:
        rows = []
        for (first, last), follower in zip(RANGES, followers, strict=True):
            follower.observe(row[first:last])
            rows.append(follower.forecast(lookahead, confidence)[0])
        return rows

    made = {name: [_follower(name, network) for network in networks] for name in ("core", "pytorch", "transformers")}
    expected = forecasts(made["transformers"], LOOKAHEAD)
    for name in ("core", "pytorch"):  # the same forecasts, before anything is timed
        for mine, other in zip(forecasts(made[name], LOOKAHEAD), expected, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-4)
    if way == "floor":
        states = [network.new_state(1).mixers[0].scan for network in networks]
        mixers = [network.trunk.mixers[0] for network in networks]
        numbers = [part.weight for mixer in mixers for part in (mixer.in_proj, mixer.out_proj)] + states
        numbers += [network.leave.weight for network in networks]
        benchmark(lambda: [tensor.sum() for _ in range(LOOKAHEAD + 1) for tensor in numbers])
    elif way == "discounted_use":  # the direct head needs no rollout
        benchmark(forecasts, made["core"], 0)
    else:
        benchmark(forecasts, made[way], LOOKAHEAD)
