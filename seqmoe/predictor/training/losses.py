"""What a prediction is held to: the ranking of experts, their distribution, and their discounted use."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Hardest inactive experts per active one that the ranking loss looks at, and by how much they must stay behind.
_NEGATIVES = 2
_MARGIN = 1.0
# Weight of the past in the discounted use: half of it lies within the next three steps, a tenth beyond ten.
USE_DISCOUNT = 0.8
_USE_WEIGHT = 0.5


def ranking_loss(logits: Tensor, target: Tensor, top_k: int) -> Tensor:
    """Margin ranking with hard negatives: true experts above the inactive ones that score highest.

    ``logits`` and ``target`` [n, experts]; a row of ``target`` has ``top_k`` positive entries. Paper, section 5.
    Zero where every expert is active.
    """
    if top_k == logits.shape[-1]:
        return logits.sum() * 0
    active = target > 0
    true = logits.gather(-1, target.topk(top_k, -1).indices)
    count = min(_NEGATIVES * top_k, logits.shape[-1] - top_k)
    hard = logits.masked_fill(active, -torch.inf).topk(count, -1).values
    return functional.relu(_MARGIN - true[:, :, None] + hard[:, None, :]).mean()


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL divergence of the predicted distribution from the true one, mean over rows [n, experts]."""
    return functional.kl_div(logits.log_softmax(-1), target, reduction="batchmean")


def use_loss(use: Tensor, target: Tensor, top_k: int) -> Tensor:
    """Cross entropy of each expert's discounted use, in units of an active expert; both [n, experts]."""
    return functional.binary_cross_entropy_with_logits(use, target) * (_USE_WEIGHT * target.shape[-1] / top_k)


def discounted_use(active: Tensor) -> Tensor:
    """For each step t of [batch, time, ...], sum over j of (1 - g) g^j active(t + 1 + j); nothing after the end."""
    result = torch.zeros_like(active, dtype=torch.float32)
    for step in range(active.shape[1] - 2, -1, -1):
        result[:, step] = (1 - USE_DISCOUNT) * active[:, step + 1] + USE_DISCOUNT * result[:, step + 1]
    return result
