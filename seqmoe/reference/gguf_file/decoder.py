"""What llama.cpp's MoE decoders have in common: tensors by name and shape, hyperparameters, and what they demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from seqmoe.reference.gguf_file.source import Source
from seqmoe.reference.gguf_file.tensor import Tensor

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of a layer: its ``name`` in GGUF, what it is ``stored`` as, and its ``shape`` after ``change``."""

    name: str
    stored: str
    shape: tuple[int, ...]
    change: Callable[[Array], Array] | None = None


class Decoder:
    """A family as llama.cpp's ``architecture``. Subclasses say what differs; ``needs`` puts `demands` into words."""

    architecture = ""
    needs = ""

    def demands(self, config: Any) -> tuple[tuple[str, bool], ...]:
        """Keys of the configuration, and whether they are as llama.cpp has them built in.

        A checkpoint that differs would run, and answer differently.
        """
        rope = getattr(config, "rope_parameters", None) or {}
        return (
            ("hidden_act", config.hidden_act == "silu"),
            ("attention_bias", not getattr(config, "attention_bias", False)),
            ("rope_parameters", rope.get("rope_type", "default") == "default"),
        )

    def write(self, writer: gguf.GGUFWriter, config: Any, name: str) -> None:
        """Add the hyperparameters of every family; a subclass adds its own."""
        writer.add_name(name)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(self.feed_forward(config))
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(head_size(config))
        writer.add_value_length(head_size(config))
        writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_expert_count(expert_count(config))
        writer.add_expert_used_count(config.num_experts_per_tok)

    def feed_forward(self, config: Any) -> int:
        """Inner width of what is no expert, or of an expert where there is nothing else."""
        return int(config.intermediate_size)

    def attention(self, config: Any, layer: int) -> list[Part]:
        """A layer's attention and the norms around it."""
        hidden, head = config.hidden_size, head_size(config)
        queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
        return [
            Part("attn_norm.weight", "input_layernorm.weight", (hidden,)),
            Part("attn_q.weight", "self_attn.q_proj.weight", (queries, hidden)),
            Part("attn_k.weight", "self_attn.k_proj.weight", (keys, hidden)),
            Part("attn_v.weight", "self_attn.v_proj.weight", (keys, hidden)),
        ]

    def feeding(self, config: Any) -> list[Part]:
        """A layer's norm before the experts, its router, and what else is beside the routed experts."""
        return [
            Part("ffn_norm.weight", "post_attention_layernorm.weight", (config.hidden_size,)),
            Part("ffn_gate_inp.weight", "mlp.gate.weight", (expert_count(config), config.hidden_size)),
        ]

    def output(self, config: Any) -> Part:
        """Of attention, back to the stream."""
        queries = config.num_attention_heads * head_size(config)
        return Part("attn_output.weight", "self_attn.o_proj.weight", (config.hidden_size, queries))

    def final_norm(self, values: Array) -> Array:
        """The last norm's weights as llama.cpp multiplies with them."""
        return values

    def tensors(self, source: Source) -> Iterator[Tensor]:
        """Everything in the file's order."""
        config = source.config
        hidden, vocabulary = config.hidden_size, config.vocab_size
        yield Tensor("token_embd.weight", (vocabulary, hidden), partial(source.read, "embed_tokens.weight"))
        yield Tensor("output_norm.weight", (hidden,), lambda: self.final_norm(source.read("norm.weight")))
        if not config.tie_word_embeddings:
            yield Tensor("output.weight", (vocabulary, hidden), partial(source.read, "lm_head.weight"))
        for layer in range(config.num_hidden_layers):
            for part in [*self.attention(config, layer), *self.feeding(config)]:
                yield Tensor(f"blk.{layer}.{part.name}", part.shape, partial(_changed, source, layer, part))
            yield from self.experts(source, layer)

    def experts(self, source: Source, layer: int) -> Iterator[Tensor]:
        """The routed experts of a layer, a tensor for each of their matrices and biases."""
        shapes = source.family.expert_format(source.config, "float32").parts
        for part in ("gate", "up", "down"):
            for ending, kind in (("", "weight"), ("_bias", "bias")):
                whole = shapes.get(f"{part if part == 'down' else 'gate_up'}{ending}")
                if whole is not None:
                    rows = whole[0] if part == "down" else whole[0] // 2
                    shape = (source.geometry.experts, rows, *whole[1:])
                    read = partial(source.expert_part, layer, f"{part}{ending}")
                    yield Tensor(f"blk.{layer}.ffn_{part}_exps.{kind}", shape, read)


def head_size(config: Any) -> int:
    """Size of an attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def expert_count(config: Any) -> int:
    """Routed experts of a layer."""
    return int(getattr(config, "num_experts", None) or config.num_local_experts)


def _changed(source: Source, layer: int, part: Part) -> Array:
    values = source.read(f"layers.{layer}.{part.stored}")
    return values if part.change is None else part.change(values)
