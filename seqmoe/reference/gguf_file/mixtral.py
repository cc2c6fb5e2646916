"""Mixtral is llama.cpp's llama with experts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import gguf

from seqmoe.reference.gguf_file.decoder import Array, Decoder, Part, head_size


class Mixtral(Decoder):
    """Its rotary positions turn neighbouring features, Transformers' the two halves of a head: rows are interleaved."""

    architecture = "llama"
    needs = "for silu, plain rotary positions and attention without a window"

    def demands(self, config: Any) -> tuple[tuple[str, bool], ...]:
        """No window that is ever shorter than the context."""
        window = config.sliding_window
        return (*super().demands(config), ("sliding_window", not window or window >= config.max_position_embeddings))

    def write(self, writer: gguf.GGUFWriter, config: Any, name: str) -> None:
        """Size of the rotated part of a head, and of the vocabulary."""
        super().write(writer, config, name)
        writer.add_rope_dimension_count(head_size(config))
        writer.add_vocab_size(config.vocab_size)

    def attention(self, config: Any, layer: int) -> list[Part]:
        """With rows of queries and keys in llama.cpp's order."""
        heads = {"attn_q.weight": config.num_attention_heads, "attn_k.weight": config.num_key_value_heads}
        parts = [
            replace(part, change=partial(_interleaved, heads=heads[part.name])) if part.name in heads else part
            for part in super().attention(config, layer)
        ]
        return [*parts, self.output(config)]


def _interleaved(rows: Array, heads: int) -> Array:
    """Rows of the two halves of each head by turns."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)
