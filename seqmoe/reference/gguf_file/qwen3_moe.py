"""Qwen3-MoE is llama.cpp's qwen3moe."""

from __future__ import annotations

from typing import Any

import gguf

from seqmoe.reference.gguf_file.decoder import Decoder, Part, head_size


class Qwen3Moe(Decoder):
    """Norms over each head of queries and keys; no layer is dense."""

    architecture = "qwen3moe"
    needs = (
        "for every layer sparse, silu, normalised top-k weights, plain rotary positions, no attention bias, no window"
    )

    def demands(self, config: Any) -> tuple[tuple[str, bool], ...]:
        """Every layer sparse, weights that add up to one, and full attention."""
        sparse = config.decoder_sparse_step == 1 and not config.mlp_only_layers
        return (
            *super().demands(config),
            ("norm_topk_prob", config.norm_topk_prob is True),
            ("use_sliding_window", not config.use_sliding_window),
            ("decoder_sparse_step", sparse),
        )

    def write(self, writer: gguf.GGUFWriter, config: Any, name: str) -> None:
        """Experts have a width of their own."""
        super().write(writer, config, name)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_vocab_size(config.vocab_size)

    def attention(self, config: Any, layer: int) -> list[Part]:
        """With the norms of heads."""
        head = head_size(config)
        return [
            *super().attention(config, layer),
            Part("attn_q_norm.weight", "self_attn.q_norm.weight", (head,)),
            Part("attn_k_norm.weight", "self_attn.k_norm.weight", (head,)),
            self.output(config),
        ]
