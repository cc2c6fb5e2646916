"""Scheduled sampling: some inputs are replaced by the network's own predictions of them (paper, section 5)."""

from __future__ import annotations

import torch
from torch import Tensor

from seqmoe.predictor.network import RangedNetworks, feedback

# A rollout feeds back this many steps in a row, so the replaced steps come in runs of up to as many.
_RUN = 8
# Each pass predicts from the inputs of the last one, so a run's second step sees its first one replaced.
_PASSES = 2


@torch.no_grad()
def with_own_predictions(networks: RangedNetworks, inputs: Tensor, share: float, top_k: int, psi: bool) -> Tensor:
    """``inputs`` [batch, time, layers, experts] with up to ``share`` of the steps replaced, see `_runs`.

    Step t + 1 becomes what the networks predict for it from the (replaced) steps up to t. Layers that are missing stay
    so. All steps are predicted at once, which approximates a rollout: after n passes, runs of n steps are exact.
    """
    replaced = _runs(inputs.shape[0], inputs.shape[1], share, inputs.device)[:, :, None, None]
    replaced = replaced & (inputs != 0).any(-1, keepdim=True)
    mixed = inputs
    for _ in range(_PASSES):
        predicted = feedback(networks(mixed).logits[:, :-1], top_k, psi)
        mixed = torch.cat([inputs[:, :1], torch.where(replaced[:, 1:], predicted, inputs[:, 1:])], 1)
    return mixed


def _runs(batch: int, time: int, share: float, device: torch.device) -> Tensor:
    """Boolean [batch, time]: runs of 1 to `_RUN` steps that cover ``share`` of all, less where they overlap.

    They do at random, so that 0.5 comes to about 0.41 of the steps.
    """
    starts = torch.rand(batch, time, device=device) < share / ((_RUN + 1) / 2)
    length = torch.randint(1, _RUN + 1, (batch, time), device=device)
    place = torch.arange(time, device=device)
    ends = torch.where(starts, place + length, 0).cummax(1).values
    return place < ends
