"""What keeps the reference model's routing like real MoE models': balanced enough, and with reuse between tokens.

Both losses act only outside their bounds. Left to itself a model this small drifts to an almost even load whose experts
change from token to token, which no real model shows, and no cache could do anything with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqmoe.reference.recipe import Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """Routing of a batch, each [layers].

    ``balance`` is Switch Transformer's load-balancing loss (1 when balanced), ``overlap`` the share of a token's
    experts that the token before it used too, ``distance`` the router's probability outside the previous token's
    experts.
    """

    balance: torch.Tensor
    overlap: torch.Tensor
    distance: torch.Tensor


def measure_routing(router_logits: tuple[torch.Tensor, ...], recipe: Recipe) -> Routing:
    """Measure a batch of ``recipe.sequences_per_step`` sequences; each layer's logits are [tokens, experts]."""
    balance, overlap, distance = [], [], []
    for logits in router_logits:
        probability = logits.float().softmax(-1)
        chosen = torch.zeros_like(probability).scatter_(1, probability.topk(recipe.top_k, -1).indices, 1.0)
        balance.append(recipe.experts * (chosen.mean(0) / recipe.top_k * probability.mean(0)).sum())
        shape = (recipe.sequences_per_step, -1, recipe.experts)
        previous, current = chosen.view(shape)[:, :-1], chosen.view(shape)[:, 1:]
        overlap.append((current * previous).sum(-1).mean() / recipe.top_k)
        distance.append(1 - (probability.view(shape)[:, 1:] * previous).sum(-1).mean())
    return Routing(torch.stack(balance), torch.stack(overlap), torch.stack(distance))


def routing_loss(routing: Routing, recipe: Recipe, step: int) -> torch.Tensor:
    """Loss to add at a step: imbalance above the margin; distance where a layer's overlap is below its target."""
    excess = torch.relu(routing.balance - recipe.balance_margin).mean()
    if step < round(recipe.reuse_start_share * recipe.steps):
        return recipe.balance_weight * excess
    lacking = (routing.overlap < recipe.reuse_target).float()
    return recipe.balance_weight * excess + recipe.reuse_weight * (lacking * routing.distance).mean()
