"""Qwen3-MoE (Qwen3-30B-A3B and the reference model): softmax router, SwiGLU experts fused per layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqmoe.adapters.base import ExpertShape, ExpertsModule
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Qwen3Moe:
    """Every ``decoder_sparse_step``-th layer is an MoE layer, unless listed in ``mlp_only_layers``."""

    name: str = "qwen3_moe"

    def geometry(self, config: Any) -> Geometry:
        """Geometry of a model with this configuration; ``expert_bytes`` for float32 weights.

        Raises `InputError` for another activation than SiLU, which the kernels compute.
        """
        if config.hidden_act != "silu":
            raise InputError(f"hidden_act = {config.hidden_act!r}: the expert kernel computes 'silu' only")
        sparse = [
            layer
            for layer in range(config.num_hidden_layers)
            if layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0
        ]
        shape = ExpertShape(config.hidden_size, config.moe_intermediate_size)
        return Geometry(len(sparse), config.num_experts, config.num_experts_per_tok, expert_bytes=shape.numbers * 4)

    def experts(self, model: Any) -> list[ExpertsModule]:
        """The experts module of each MoE layer, in layer order."""
        return [layer.mlp.experts for layer in model.model.layers if hasattr(layer.mlp, "experts")]


FAMILY = Qwen3Moe()
