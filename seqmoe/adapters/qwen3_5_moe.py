"""Qwen3.5-MoE (serves Qwen3.6-35B-A3B): softmax router, a shared expert, and linear attention in most layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqmoe.adapters.gated import GatedFamily


@dataclass(frozen=True, slots=True)
class Qwen35Moe(GatedFamily):
    """Every layer is an MoE layer. The gated delta rule's state ignores position ids: sequences do not pack."""

    name: str = "qwen3_5_moe"
    packs: bool = False

    def expert_count(self, config: Any) -> int:
        """Routed experts; the shared one is no expert of a router."""
        return int(config.num_experts)

    def expert_width(self, config: Any) -> int:
        """Inner width of one routed expert."""
        return int(config.moe_intermediate_size)


FAMILY = Qwen35Moe()
