"""Protects what a training is made of: losses, feedback, scheduled sampling, batches, calibration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cycling_traces import EXPERTS, LAYERS, TOP_K, cycling

from seqmoe.predictor.confidence import fit_line
from seqmoe.predictor.network import NetworkShape, RangedNetworks, SequenceNetwork, feedback
from seqmoe.predictor.psi import psi_of_logits
from seqmoe.predictor.training import TrainingOptions, train_predictor
from seqmoe.predictor.training.batches import BatchSource
from seqmoe.predictor.training.losses import USE_DISCOUNT, discounted_use, divergence, ranking_loss
from seqmoe.predictor.training.sampling import with_own_predictions
from seqmoe.predictor.training.validation import calibrate
from seqmoe.spec.errors import InputError


def test_losses_equal_plain_loops():
    torch.manual_seed(0)
    logits, target = torch.randn(5, 8), torch.zeros(5, 8)
    for row in target:
        row[torch.randperm(8)[:2]] = torch.tensor([0.75, 0.25])
    hinges = []
    for row, true in zip(logits.tolist(), target.tolist(), strict=True):
        hard = sorted((v for v, t in zip(row, true, strict=True) if not t), reverse=True)[:4]
        hinges += [max(0.0, 1 - v + h) for v, t in zip(row, true, strict=True) if t for h in hard]
    assert float(ranking_loss(logits, target, 2)) == pytest.approx(np.mean(hinges), rel=1e-5)
    p, q = target.double().numpy(), logits.double().softmax(-1).numpy()
    kl = np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0).sum() / 5
    assert float(divergence(logits, target)) == pytest.approx(kl, rel=1e-5)
    active = torch.rand(2, 9, 3) < 0.4
    use = discounted_use(active)
    for t in range(9):
        expected = sum((1 - USE_DISCOUNT) * USE_DISCOUNT**j * active[:, t + 1 + j].float() for j in range(8 - t))
        torch.testing.assert_close(use[:, t], torch.as_tensor(expected).expand(2, 3).float())


def test_feedback_is_psi():
    logits = torch.randn(3, 4, 12)
    np.testing.assert_allclose(feedback(logits, 3).numpy(), psi_of_logits(logits.numpy(), 3), atol=1e-6)


def test_scheduled_sampling_replaces_about_the_share_by_predictions():
    torch.manual_seed(0)
    shape = NetworkShape("mamba2", LAYERS, EXPERTS, TOP_K, 32, 1)
    networks = RangedNetworks(((0, LAYERS),), [SequenceNetwork(shape)]).eval()
    inputs = next(BatchSource(cycling(16, steps=200), 16, 0).epoch(0)).inputs
    mixed = with_own_predictions(networks, inputs, 0.4, TOP_K, psi=True)
    changed = (mixed != inputs).any(-1).any(-1)
    assert not changed[:, 0].any() and 0.3 < changed.float().mean() < 0.5
    once = feedback(networks(inputs).logits, TOP_K)
    alone = changed[:, 1:] & ~changed[:, :-1]
    # The first step of a run is what the network makes of what lies before it, earlier runs included, so that it
    # differs from what it makes of the truth only where those matter; in both cases it is a distribution over top-k.
    assert torch.equal((mixed[:, 1:][alone] > 0).sum(-1), (once[:, :-1][alone] > 0).sum(-1))


def test_batches_are_a_partition_of_the_epoch_and_of_the_ranks():
    source = BatchSource(cycling(20, steps=30), batch=3, seed=1)
    whole = sum(batch.tokens for batch in source.epoch(4))
    assert whole == 600
    # Seven batches: every rank gets as many, or one would wait for the other's gradients for ever.
    parts = [[batch.inputs for batch in source.epoch(4, rank, 2)] for rank in range(2)]
    assert [len(part) for part in parts] == [4, 4]
    shared = {batch.numpy().tobytes() for part in parts for batch in part}
    assert shared == {batch.inputs.numpy().tobytes() for batch in source.epoch(4)}
    assert all(list(source.epoch(4, rank, 9)) for rank in range(9)), "more ranks than batches"
    again = [batch.inputs for batch in source.epoch(4)]
    assert all(torch.equal(a, b.inputs) for a, b in zip(again, source.epoch(4), strict=True))


def test_chances_of_exactly_nothing_are_calibrated_too():
    predictor, _ = train_predictor(cycling(8), cycling(4), TrainingOptions("mamba2", tokens=500, hidden=32, batch=4))
    with torch.no_grad():
        for network in predictor.networks:
            network.leave.weight.mul_(1e4)
    for confidence in calibrate(predictor, BatchSource(cycling(4, seed=5), 1, 0)):
        assert np.isfinite(confidence.lines).all()
        # Where the fit starts: it would stay there if the logarithm of a chance were infinite.
        assert not (confidence.lines == 1).all(-1).any()


def test_a_line_is_recovered_from_outcomes():
    rng = np.random.default_rng(0)
    x = rng.normal(-3, 1.5, 60_000).astype(np.float32)
    y = rng.random(60_000) < 1 / (1 + np.exp(-(1.7 * x + 2.5)))
    assert fit_line(x, y) == pytest.approx((1.7, 2.5), abs=0.1)


@pytest.mark.parametrize(("changes", "text"), [
    ({"kind": "mamba"}, "mamba2"), ({"loss": "kll"}, "kl"), ({"tokens": None}, "budget"), ({"tokens": -1}, "= -1"),
    ({"minutes": 0.0}, "minutes = 0"), ({"hidden": 0}, "hidden = 0"),
    ({"hidden": 100}, "a multiple of 64"), ({"hidden": 64 * 10**6}, "a multiple of 64"), ({"seed": -1}, "seed = -1"),
    ({"seed": 2**70}, "seed = "),
])  # fmt: skip
def test_bad_options_say_which(changes, text):
    with pytest.raises(InputError, match=text):
        TrainingOptions(**({"kind": "mamba2", "tokens": 10} | changes))
    with pytest.raises(InputError, match="the model has 4 layers"):
        TrainingOptions("mamba2", tokens=10, ranges=5).layer_ranges(LAYERS)
