"""GPT-OSS: softmax over the chosen logits, biased router; experts transposed, interleaved, biased and clamped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from seqmoe.adapters.base import ExpertFormat
from seqmoe.adapters.gated import GatedFamily
from seqmoe.adapters.layout import GPT_OSS, GPT_OSS_MXFP4, StoredLayout


@dataclass(frozen=True, slots=True)
class GptOss(GatedFamily):
    """Every layer is an MoE layer; the softmax over the chosen logits equals the renormalised one over all."""

    name: str = "gpt_oss"
    layouts: tuple[StoredLayout, ...] = (GPT_OSS, GPT_OSS_MXFP4)
    module_layout: StoredLayout = GPT_OSS
    quantisations: tuple[str, ...] = ("mxfp4",)

    def expert_format(self, config: Any, dtype: str) -> ExpertFormat:
        """The clamped gate with its slope and offset, and biases."""
        return ExpertFormat(
            config.hidden_size,
            config.intermediate_size,
            dtype,
            activation="swiglu_oai",
            limit=float(config.swiglu_limit),
            alpha=float(config.swiglu_alpha),
            bias=True,
        )

    def packed_mask(self, model: Any, positions: torch.Tensor) -> Any:
        """Both kinds of mask: the model's own forward (Transformers 5.24) makes them without looking at positions."""
        shaped_like = torch.empty((*positions.shape, 1), dtype=model.dtype, device=positions.device)
        arguments = {
            "config": model.config, "inputs_embeds": shaped_like, "attention_mask": None, "cache": None,
            "position_ids": positions,
        }  # fmt: skip
        return {
            "full_attention": create_causal_mask(**arguments),
            "sliding_attention": create_sliding_window_causal_mask(**arguments),
        }

    def routers(self, model: Any) -> list[torch.nn.Module]:
        """The router module of each layer, in layer order."""
        return [layer.mlp.router for layer in model.model.layers]


FAMILY = GptOss()
