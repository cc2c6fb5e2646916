"""What most families share: SwiGLU experts and a router of one linear layer in every MoE layer's ``mlp``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from seqmoe.adapters.base import ExpertFormat, ExpertsModule, Routing
from seqmoe.adapters.layout import FUSED, SEPARATE, StoredLayout
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry


@dataclass(frozen=True, slots=True)
class GatedFamily:
    """Every decoder layer is an MoE layer; a family overrides what differs."""

    name: str
    packs: bool = True
    static_cache: bool = True
    block: str = "mlp"
    layouts: tuple[StoredLayout, ...] = (SEPARATE, FUSED)
    module_layout: StoredLayout = FUSED
    quantisations: tuple[str, ...] = ()

    def geometry(self, config: Any, dtype: str = "float32") -> Geometry:
        """Geometry for the runtime; ``expert_bytes`` in its own format, biases included."""
        return replace(self.shape(config), expert_bytes=self.expert_format(config, dtype).expert_bytes)

    def expert_format(self, config: Any, dtype: str) -> ExpertFormat:
        """SwiGLU without clamp. Raises `InputError` for another activation than SiLU, which the kernels compute."""
        config = config.get_text_config()
        if config.hidden_act != "silu":
            raise InputError(f"hidden_act = {config.hidden_act!r}: the expert kernel computes 'silu' only")
        return ExpertFormat(config.hidden_size, self.expert_width(config), dtype)

    def shape(self, config: Any) -> Geometry:
        """Geometry of any model of the family; ``expert_bytes`` for float32 weights."""
        config = config.get_text_config()
        size = ExpertFormat(config.hidden_size, self.expert_width(config), "float32").expert_bytes
        layers, experts = len(self.moe_layers(config)), self.expert_count(config)
        return Geometry(layers, experts, config.num_experts_per_tok, expert_bytes=size)

    def moe_layers(self, config: Any) -> tuple[int, ...]:
        """Numbers of the decoder layers that are MoE layers."""
        return tuple(range(config.get_text_config().num_hidden_layers))

    def expert_count(self, config: Any) -> int:
        """Routed experts of one layer; a shared one is no expert of a router."""
        return int(config.num_local_experts)

    def expert_width(self, config: Any) -> int:
        """Inner width of one expert."""
        return int(config.intermediate_size)

    def packed_mask(self, model: Any, positions: torch.Tensor) -> Any:
        """None: Transformers' models find packed sequences by their positions."""
        return None

    def experts(self, model: Any) -> list[ExpertsModule]:
        """The experts module of each MoE layer, in layer order."""
        return [layer.mlp.experts for layer in model.model.layers if hasattr(layer.mlp, "experts")]

    def routers(self, model: Any) -> list[torch.nn.Module]:
        """The router module of each MoE layer, in layer order."""
        return [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "experts")]

    def routing(self, output: Any) -> Routing:
        """Transformers' routers return logits, weights and indices."""
        logits, weights, indices = output
        return Routing(logits, weights, indices)

    def router_kind(self, config: Any) -> str:
        """Softmax over all experts, renormalised over the chosen ones unless the configuration says otherwise."""
        return "softmax_renormalised" if getattr(config, "norm_topk_prob", True) else "softmax"

    def hash_layers(self, config: Any) -> tuple[int, ...]:
        """None."""
        return ()

    def early_choice(self, router: Any, state: torch.Tensor, token_ids: torch.Tensor, count: int) -> torch.Tensor:
        """Softmax keeps the order of the logits."""
        return linear_logits(router, state).topk(count, dim=-1).indices


def linear_logits(router: Any, state: torch.Tensor) -> torch.Tensor:
    """Logits [tokens, experts] of a router on any state [tokens, hidden]."""
    return torch.nn.functional.linear(state, router.weight, getattr(router, "bias", None))
