"""Tiny models of every family whose cache has a fixed size, on random weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING

from seqmoe.adapters.base import family_of
from seqmoe.predictor.base import halves
from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.network import NetworkShape, SequenceNetwork
from seqmoe.predictor.trained import TrainedPredictor
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.spec.geometry import Geometry

_SHARED: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 256, "num_experts_per_tok": 3, "initializer_range": 0.3, "eos_token_id": 319,
    "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"head_dim": 32, "moe_intermediate_size": 32, "num_experts": 24},
    "olmoe": {"intermediate_size": 32, "num_experts": 16},
    "mixtral": {"intermediate_size": 32, "num_local_experts": 12, "sliding_window": 8},
    "qwen3_5_moe_text": {
        "head_dim": 32, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 24,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "gpt_oss": {"head_dim": 32, "intermediate_size": 32, "num_local_experts": 12, "sliding_window": 8},
}  # fmt: skip


def tiny_checkpoint(model_type: str, dtype: str = "bfloat16") -> Checkpoint:
    """A model of that family as `random_on` takes it."""
    config = CONFIG_MAPPING[model_type](**_SHARED | FAMILIES[model_type])
    return Checkpoint(f"tiny {model_type}", config, None, family_of(model_type), dtype)


def untrained_mamba2(geometry: Geometry) -> TrainedPredictor:
    """A predictor of random weights: it forecasts nothing of sense, and makes all the work that one makes."""
    ranges = halves(geometry.layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = [
            SequenceNetwork(NetworkShape("mamba2", last - first, geometry.experts, geometry.top_k, 32, 1))
            for first, last in ranges
        ]
    return TrainedPredictor("mamba2", ranges, networks, [Confidence.uncalibrated(geometry.top_k) for _ in ranges])
