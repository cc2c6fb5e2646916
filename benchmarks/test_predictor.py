"""What a forecast costs per token: one step and an eight-step rollout, beside Transformers' Mamba2 mixer.

The floor of a step is one pass over its weights and its state, as the sum of that many float32.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DynamicCache, Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as TransformersMixer

from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.mamba2.mixer import Mamba2Mixer, MixerShape
from seqmoe.predictor.network import NetworkShape, SequenceNetwork, feedback
from seqmoe.predictor.trained import TrainedPredictor

# GPT-OSS-20B's routing, and the sizes that training chooses for it: two predictors of half the layers each.
LAYERS, EXPERTS, TOP_K, HIDDEN, LOOKAHEAD = 24, 32, 4, 384, 7
RANGES = ((0, LAYERS // 2), (LAYERS // 2, LAYERS))


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
@pytest.mark.parametrize("way", ["ours", "transformers", "floor"])
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
def predictor() -> TrainedPredictor:
    torch.manual_seed(0)
    networks = [
        SequenceNetwork(NetworkShape("mamba2", last - first, EXPERTS, TOP_K, HIDDEN, 1)) for first, last in RANGES
    ]
    return TrainedPredictor("mamba2", RANGES, networks, [Confidence.uncalibrated(TOP_K)] * 2)


@pytest.mark.benchmark(group="one step and a rollout of eight, two predictors, per token")
@pytest.mark.parametrize("way", ["ours", "transformers", "discounted_use"])
@torch.inference_mode()
def test_forecast(benchmark, predictor, way):
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    row = np.zeros((LAYERS, EXPERTS), dtype=np.float32)
    np.put_along_axis(row, rng.permuted(np.tile(np.arange(EXPERTS), (LAYERS, 1)), axis=1)[:, :TOP_K], 1 / TOP_K, 1)
    peers = [_TransformersMixers(network.trunk.mixers[0]) for network in predictor.networks]

    def ours(lookahead: int) -> list[np.ndarray]:
        rows = []
        for first, last in RANGES:
            predictor.observe(row, first, last)
            rows.append(predictor.forecast(first, last, lookahead).probability)
        return rows

    def through_transformers() -> list[np.ndarray]:
        rows = []
        for (first, last), network, peer in zip(RANGES, predictor.networks, peers, strict=True):
            trunk, confidence = network.trunk, Confidence.uncalibrated(TOP_K)
            read, probability = torch.from_numpy(row[None, first:last]), []
            before = None
            for step in range(LOOKAHEAD + 1):
                hidden = network._embed(read)
                hidden = hidden + peer.step(trunk._norm(0, hidden))
                logits = network._predict(trunk._norm(-1, hidden)).logits
                before = peer.snapshot() if before is None else before
                probability.append(confidence.probability(logits, step)[0])
                read = feedback(logits, TOP_K)
            peer.restore(before)
            rows.append(torch.stack(probability).numpy())
        return rows

    predictor.reset()
    for mine, other in zip(ours(LOOKAHEAD), through_transformers(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4)
    if way == "ours":
        benchmark(ours, LOOKAHEAD)
    elif way == "transformers":
        benchmark(through_transformers)
    else:  # the direct head needs no rollout
        benchmark(ours, 0)
