"""What a training starts from: networks of the chosen sizes, and their optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqmoe.predictor.network import NetworkShape, RangedNetworks, SequenceNetwork
from seqmoe.predictor.training.options import LOOKAHEAD, TrainingOptions
from seqmoe.spec.trace import TraceSet

_WEIGHT_DECAY = 0.1


def described(traces: TraceSet) -> dict[str, Any]:
    """What a record says of the traces."""
    return {"model": traces.model, "source": traces.source, "requests": len(traces.requests)}


def networks_for(traces: TraceSet, options: TrainingOptions) -> RangedNetworks:
    """Untrained networks, one per layer range."""
    ranges = options.layer_ranges(traces.layers)
    hidden, blocks = options.size(len(ranges))
    ahead = LOOKAHEAD if options.direct else 0
    return RangedNetworks(
        ranges,
        (
            SequenceNetwork(
                NetworkShape(
                    options.trunk, last - first, traces.experts, traces.top_k, hidden, blocks, options.use_head, ahead
                )
            )
            for first, last in ranges
        ),
    )


def optimizer_for(networks: nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    """AdamW; matrices decay, vectors and the short convolutions do not."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, tensor in networks.named_parameters():
        (matrices if tensor.dim() > 1 and "conv" not in name else others).append(tensor)
    groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, options.learning_rate, betas=(0.9, 0.95), fused=True)
