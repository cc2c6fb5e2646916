"""GPT-OSS is llama.cpp's gpt-oss: biases everywhere, attention sinks, a window in every other layer, YaRN."""

from __future__ import annotations

from typing import Any

import gguf

from seqmoe.reference.gguf_file.decoder import Decoder, Part, expert_count

# Built into llama.cpp's activation.
_ALPHA, _LIMIT = 1.702, 7.0
_ALTERNATING = ("sliding_attention", "full_attention")


class GptOss(Decoder):
    """The router's softmax is over the chosen experts' logits."""

    architecture = "gpt-oss"
    needs = (
        f"for swiglu_alpha {_ALPHA} and swiglu_limit {_LIMIT}, a window in every other layer from the first, plain or "
        "YaRN's rotary positions, attention with biases, and a head of its own"
    )

    def demands(self, config: Any) -> tuple[tuple[str, bool], ...]:
        """What its activation and its attention have built in."""
        kinds = [_ALTERNATING[layer % 2] for layer in range(config.num_hidden_layers)]
        return (
            ("attention_bias", bool(config.attention_bias)),
            ("rope_parameters", config.rope_parameters.get("rope_type", "default") in ("default", "yarn")),
            ("swiglu_alpha", config.swiglu_alpha == _ALPHA),
            ("swiglu_limit", config.swiglu_limit == _LIMIT),
            ("layer_types", list(config.layer_types) == kinds),
            ("tie_word_embeddings", not config.tie_word_embeddings),
        )

    def write(self, writer: gguf.GGUFWriter, config: Any, name: str) -> None:
        """Window, width of the experts, and YaRN."""
        super().write(writer, config, name)
        writer.add_sliding_window(config.sliding_window)
        writer.add_expert_feed_forward_length(config.intermediate_size)
        rope = config.rope_parameters
        if rope.get("rope_type") == "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(float(rope["factor"]))
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])

    def attention(self, config: Any, layer: int) -> list[Part]:
        """Biases and sinks."""
        weights = [*super().attention(config, layer), self.output(config)]
        biases = [
            Part(part.name.replace(".weight", ".bias"), part.stored.replace(".weight", ".bias"), part.shape[:1])
            for part in weights
            if "norm" not in part.name
        ]
        return [*weights, *biases, Part("attn_sinks.weight", "self_attn.sinks", (config.num_attention_heads,))]

    def feeding(self, config: Any) -> list[Part]:
        """The router has a bias."""
        experts, hidden = expert_count(config), config.hidden_size
        return [
            Part("post_attention_norm.weight", "post_attention_layernorm.weight", (hidden,)),
            Part("ffn_gate_inp.weight", "mlp.router.weight", (experts, hidden)),
            Part("ffn_gate_inp.bias", "mlp.router.bias", (experts,)),
        ]
