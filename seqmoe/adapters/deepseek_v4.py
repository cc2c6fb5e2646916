"""DeepSeek-V4: scores by sqrt(softplus) with a correction bias; the first layers route by a table of token ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from seqmoe.adapters.base import ExpertFormat
from seqmoe.adapters.gated import GatedFamily, linear_logits
from seqmoe.adapters.layout import FUSED, SEPARATE_BY_NUMBER, StoredLayout
from seqmoe.spec.trace import ROUTERS


@dataclass(frozen=True, slots=True)
class DeepseekV4(GatedFamily):
    """Every layer is an MoE layer. Compressed attention summarises blocks of a row: sequences do not pack.

    Its cache grows with the compressed context, so it has no fixed addresses.
    """

    name: str = "deepseek_v4"
    packs: bool = False
    static_cache: bool = False
    block: str = "ffn"
    layouts: tuple[StoredLayout, ...] = (SEPARATE_BY_NUMBER, FUSED)

    def expert_format(self, config: Any, dtype: str) -> ExpertFormat:
        """SwiGLU with both halves clamped. Shared experts are dense, and no part of the pools."""
        plain = GatedFamily.expert_format(self, config, dtype)
        return replace(plain, activation="swiglu_clamped", limit=float(config.swiglu_limit))

    def expert_width(self, config: Any) -> int:
        """Inner width of one routed expert."""
        return int(config.moe_intermediate_size)

    def router_kind(self, config: Any) -> str:
        """The configuration's score function; chosen scores are renormalised, then scaled."""
        return config.scoring_func if config.scoring_func in ROUTERS else "unknown"

    def hash_layers(self, config: Any) -> tuple[int, ...]:
        """Layers that look their experts up by token id: a perfect forecast once the token is known."""
        return tuple(layer for layer, kind in enumerate(config.mlp_layer_types) if kind == "hash_moe")

    def early_choice(self, router: Any, state: torch.Tensor, token_ids: torch.Tensor, count: int) -> torch.Tensor:
        """By score and correction bias; a hash router's own experts come first, whatever the state."""
        scores = router.score_fn(linear_logits(router, state))
        if hasattr(router, "tid2eid"):
            scores = scores.scatter(1, router.tid2eid[token_ids].long(), torch.inf)
        else:
            scores = scores + router.e_score_correction_bias
        return scores.topk(count, dim=-1).indices


FAMILY = DeepseekV4()
