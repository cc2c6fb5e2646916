"""OLMoE is llama.cpp's olmoe."""

from __future__ import annotations

from typing import Any

from seqmoe.reference.gguf_file.decoder import Decoder, Part


class Olmoe(Decoder):
    """Norms over all queries and all keys of a token at once, and weights that do not add up to one."""

    architecture = "olmoe"
    needs = (
        "for silu, top-k weights as they are, plain rotary positions, as many key heads as query heads, a head of its "
        "own, no attention bias and no clipping"
    )

    def demands(self, config: Any) -> tuple[tuple[str, bool], ...]:
        """Its norm of keys has the size of the hidden state, and its output matrix is no copy of the embedding."""
        return (
            *super().demands(config),
            ("norm_topk_prob", not config.norm_topk_prob),
            ("clip_qkv", config.clip_qkv is None),
            ("num_key_value_heads", config.num_key_value_heads == config.num_attention_heads),
            ("tie_word_embeddings", not config.tie_word_embeddings),
        )

    def attention(self, config: Any, layer: int) -> list[Part]:
        """With the norms of queries and keys."""
        return [
            *super().attention(config, layer),
            Part("attn_q_norm.weight", "self_attn.q_norm.weight", (config.hidden_size,)),
            Part("attn_k_norm.weight", "self_attn.k_norm.weight", (config.hidden_size,)),
            self.output(config),
        ]
