"""Tiny models on the CPU that stands in for a device."""

from __future__ import annotations

from pathlib import Path

import torch
from family_models import save_tiny

from seqmoe.predictor.base import halves
from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.network import NetworkShape, SequenceNetwork
from seqmoe.predictor.trained import TrainedPredictor
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.spec.geometry import Geometry

PROMPT = [5, 9, 2, 7]
TOKENS = 5
LENGTH = len(PROMPT) + TOKENS
# Two layers each, since every launch is interpreted; their configurations name every layer's kind.
CHANGES = {
    "qwen3_moe": {"num_hidden_layers": 2, "mlp_only_layers": [], "num_experts": 24},
    "gpt_oss": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    "olmoe": {"num_hidden_layers": 2},
    "mixtral": {"num_hidden_layers": 2},
    "qwen3_5_moe": {
        "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "num_experts": 24,
    },
}  # fmt: skip


def tiny_checkpoint(name: str, folder: Path) -> Checkpoint:
    """A random model of the family, in float32, with the reference model's tokenizer."""
    tokenizer = Path(__file__).parents[4] / "seqmoe" / "reference" / "checkpoint"
    save_tiny(name, folder, tokenizer, changes=CHANGES[name])
    return Checkpoint.open(folder)


def mamba2(geometry: Geometry) -> TrainedPredictor:
    """A predictor of random weights: what it forecasts means nothing, and is the same everywhere."""
    torch.manual_seed(3)
    ranges = halves(geometry.layers)
    networks = [
        SequenceNetwork(NetworkShape("mamba2", last - first, geometry.experts, geometry.top_k, 32, 1))
        for first, last in ranges
    ]
    confidence = [Confidence.uncalibrated(geometry.top_k) for _ in ranges]
    return TrainedPredictor("mamba2", ranges, networks, confidence)
