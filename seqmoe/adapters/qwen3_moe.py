"""Qwen3-MoE (Qwen3-30B-A3B and the reference model): softmax router, SwiGLU experts fused per layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqmoe.adapters.gated import GatedFamily


@dataclass(frozen=True, slots=True)
class Qwen3Moe(GatedFamily):
    """Every ``decoder_sparse_step``-th layer is an MoE layer, unless listed in ``mlp_only_layers``."""

    name: str = "qwen3_moe"

    def moe_layers(self, config: Any) -> tuple[int, ...]:
        """Layers that are neither dense by their number nor listed as dense."""
        return tuple(
            layer
            for layer in range(config.num_hidden_layers)
            if layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0
        )

    def expert_width(self, config: Any) -> int:
        """Inner width of one expert; ``intermediate_size`` is that of a dense layer."""
        return int(config.moe_intermediate_size)


FAMILY = Qwen3Moe()
