"""One training step of a Mamba2 predictor: forward, losses, backward and AdamW, one thread.

Eight sequences of 96 steps over 12 layers of 32 experts, 384 wide. The peer is the same network with Transformers'
Mamba2 mixer in the place of ours. The floor is the matrix products of the projections alone: forward, and twice as much
backward.
"""

from __future__ import annotations

import pytest
import torch
from test_predictor import _config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as TransformersMixer

from seqmoe.predictor.network import NetworkShape, SequenceNetwork
from seqmoe.predictor.training.losses import divergence, ranking_loss

LAYERS, EXPERTS, TOP_K, HIDDEN = 12, 32, 4, 384
BATCH, TIME = 8, 96


class _Theirs(torch.nn.Module):
    """Transformers' mixer behind our trunk's call."""

    def __init__(self, shape) -> None:
        super().__init__()
        self.mixer = TransformersMixer(_config(shape), 0)

    def forward(self, hidden, state=None):
        out = self.mixer(hidden)
        return out[0] if isinstance(out, tuple) else out


def _network(way: str) -> SequenceNetwork:
    torch.manual_seed(0)
    network = SequenceNetwork(NetworkShape("mamba2", LAYERS, EXPERTS, TOP_K, HIDDEN, 1))
    if way == "transformers":
        network.trunk.mixers[0] = _Theirs(network.trunk.mixers[0].shape)
    return network.train()


def _batch() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    chosen = torch.rand(BATCH, TIME, LAYERS, EXPERTS, generator=generator).topk(TOP_K, -1).indices
    return torch.zeros(BATCH, TIME, LAYERS, EXPERTS).scatter_(-1, chosen, 1 / TOP_K)


def _step(way: str):
    network, batch = _network(way), _batch()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def run() -> float:
        logits = network(batch[:, :-1]).logits.reshape(-1, EXPERTS)
        following = batch[:, 1:].reshape(-1, EXPERTS)
        loss = divergence(logits, following) + ranking_loss(logits, following, TOP_K)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return run


def _products():
    network = _network("ours")
    mixer = network.trunk.mixers[0]
    rows = BATCH * (TIME - 1)
    pairs = [
        (torch.randn(rows, layer.in_features), layer.weight.detach().T)
        for layer in (network.enter, mixer.in_proj, mixer.out_proj, network.leave)
    ]
    return lambda: [left @ right for _ in range(3) for left, right in pairs]


@pytest.mark.benchmark(group="one training step of a Mamba2 predictor")
@pytest.mark.parametrize(
    "way", ["ours", *(pytest.param(way, marks=pytest.mark.peer) for way in ("transformers", "floor"))]
)
def test_training_step(benchmark, way):
    torch.set_num_threads(1)
    run = _products() if way == "floor" else _step(way)
    if way == "ours":  # it learns: on one batch over and over, the loss must fall
        losses = [run() for _ in range(6)]
        assert losses[-1] < losses[0]
    benchmark(run)
