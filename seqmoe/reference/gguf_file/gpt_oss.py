"""GPT-OSS is llama.cpp's gpt-oss: biases, attention sinks, a window in every other layer, YaRN, MXFP4 experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from seqmoe.reference.gguf_file.decoder import Array, Decoder, Part, expert_count
from seqmoe.reference.gguf_file.source import Source
from seqmoe.reference.gguf_file.tensor import Tensor

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

    def experts(self, source: Source, layer: int) -> Iterator[Tensor]:
        """MXFP4 experts are repacked, without a look at their values."""
        stem = f"layers.{layer}.mlp.experts"
        if f"{stem}.down_proj_blocks" not in source:
            yield from super().experts(source, layer)
            return
        config, count = source.config, expert_count(source.config)
        hidden, width = config.hidden_size, config.intermediate_size
        for part, stored, rows, shape in (
            ("gate", "gate_up_proj", slice(0, None, 2), (count, width, hidden)),
            ("up", "gate_up_proj", slice(1, None, 2), (count, width, hidden)),
            ("down", "down_proj", slice(None), (count, hidden, width)),
        ):
            name, kind = f"{stem}.{stored}", gguf.GGMLQuantizationType.MXFP4

            def packed(name: str = name, rows: slice = rows) -> NDArray[np.uint8]:
                return repacked(source.raw(f"{name}_blocks")[:, rows], source.raw(f"{name}_scales")[:, rows])

            def bias(name: str = name, rows: slice = rows) -> Array:
                return source.read(f"{name}_bias")[:, rows]

            yield Tensor(f"blk.{layer}.ffn_{part}_exps.weight", shape, packed, kind)
            yield Tensor(f"blk.{layer}.ffn_{part}_exps.bias", shape[:2], bias)


def repacked(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """MXFP4 of a checkpoint as llama.cpp stores it: a block's scale before its values.

    ``blocks`` [..., blocks, 16] hold values 2 j and 2 j + 1 in byte j, ``scales`` [..., blocks]; of the result [...,
    blocks * 17] byte j of a block's values holds the values j and j + 16.
    """
    values = np.stack([blocks & 0xF, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    packed = values[..., :16] | values[..., 16:] << 4
    return np.concatenate([scales[..., None], packed], axis=-1).reshape(*scales.shape[:-1], -1)
