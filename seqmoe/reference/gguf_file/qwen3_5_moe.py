"""Qwen3.5-MoE (and Qwen3.6-35B-A3B) is llama.cpp's qwen35moe: a gated delta rule in most layers, a shared expert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np

from seqmoe.reference.gguf_file.decoder import Array, Decoder, Part, expert_count, head_size


class Qwen35Moe(Decoder):
    """Norms are stored as what is added to one; value heads lie in another order than Transformers'."""

    architecture = "qwen35moe"
    needs = "for silu, plain rotary positions, full attention at a fixed interval, and heads of one size"

    def demands(self, config: Any) -> tuple[tuple[str, bool], ...]:
        """Which layers are linear follows from one number, and their keys and values have one size."""
        kinds = [_linear(config, layer) for layer in range(config.num_hidden_layers)]
        stated = [kind == "linear_attention" for kind in config.layer_types]
        return (
            *super().demands(config),
            ("layer_types", stated == kinds),
            ("linear_value_head_dim", config.linear_value_head_dim == config.linear_key_head_dim),
        )

    def feed_forward(self, config: Any) -> int:
        """There is no dense layer."""
        return int(config.shared_expert_intermediate_size)

    def write(self, writer: gguf.GGUFWriter, config: Any, name: str) -> None:
        """Widths of routed and shared experts, and the shape of the linear layers."""
        super().write(writer, config, name)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
        turned = int(head_size(config) * config.rope_parameters.get("partial_rotary_factor", 0.25))
        writer.add_rope_dimension_count(turned)
        # Time, height and width are one position in text, so how they share a head decides nothing.
        writer.add_rope_dimension_sections([(turned // 2 + 2 - kind) // 3 for kind in range(3)] + [0])
        writer.add_full_attention_interval(_interval(config))
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)

    def final_norm(self, values: Array) -> Array:
        """Stored as what is added to one."""
        return values + 1

    def attention(self, config: Any, layer: int) -> list[Part]:
        """Full attention with an output gate beside each query head, or the gated delta rule."""
        hidden = config.hidden_size
        norm = Part("attn_norm.weight", "input_layernorm.weight", (hidden,), self.final_norm)
        if _linear(config, layer):
            return [norm, *_delta_rule(config)]
        head = head_size(config)
        queries = Part("attn_q.weight", "self_attn.q_proj.weight", (2 * config.num_attention_heads * head, hidden))
        keys, values = super().attention(config, layer)[2:4]
        return [
            norm,
            queries,
            keys,
            values,
            Part("attn_q_norm.weight", "self_attn.q_norm.weight", (head,), self.final_norm),
            Part("attn_k_norm.weight", "self_attn.k_norm.weight", (head,), self.final_norm),
            self.output(config),
        ]

    def feeding(self, config: Any) -> list[Part]:
        """The shared expert and its gate."""
        hidden, width = config.hidden_size, config.shared_expert_intermediate_size
        return [
            Part("post_attention_norm.weight", "post_attention_layernorm.weight", (hidden,), self.final_norm),
            Part("ffn_gate_inp.weight", "mlp.gate.weight", (expert_count(config), hidden)),
            Part("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", (hidden,), np.ravel),
            Part("ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", (width, hidden)),
            Part("ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", (width, hidden)),
            Part("ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", (hidden, width)),
        ]


def _interval(config: Any) -> int:
    """Every how many layers attention is full."""
    kinds = list(config.layer_types)
    return kinds.index("full_attention") + 1 if "full_attention" in kinds else len(kinds) + 1


def _linear(config: Any, layer: int) -> bool:
    return (layer + 1) % _interval(config) != 0


def _delta_rule(config: Any) -> list[Part]:
    """The linear layer's tensors, their value heads in llama.cpp's order."""
    hidden, groups, heads = config.hidden_size, config.linear_num_key_heads, config.linear_num_value_heads
    size = config.linear_value_head_dim
    keys, values = groups * config.linear_key_head_dim, heads * size
    mixed, each = _by_turns(groups, heads, size, 2 * keys), _by_turns(groups, heads, 1)
    return [
        Part("attn_qkv.weight", "linear_attn.in_proj_qkv.weight", (2 * keys + values, hidden), mixed),
        Part("attn_gate.weight", "linear_attn.in_proj_z.weight", (values, hidden), _by_turns(groups, heads, size)),
        Part("ssm_conv1d.weight", "linear_attn.conv1d.weight", (2 * keys + values, config.linear_conv_kernel_dim),
             lambda kernel: mixed(kernel[:, 0])),
        Part("ssm_dt.bias", "linear_attn.dt_bias", (heads,), each),
        Part("ssm_a", "linear_attn.A_log", (heads,), lambda logarithm: each(-np.exp(logarithm))),
        Part("ssm_beta.weight", "linear_attn.in_proj_b.weight", (heads, hidden), each),
        Part("ssm_alpha.weight", "linear_attn.in_proj_a.weight", (heads, hidden), each),
        Part("ssm_norm.weight", "linear_attn.norm.weight", (size,)),
        Part("ssm_out.weight", "linear_attn.out_proj.weight", (hidden, values),
             lambda matrix: _by_turns(groups, heads, size)(matrix.T).T),
    ]  # fmt: skip


def _by_turns(groups: int, heads: int, size: int, first: int = 0) -> Callable[[Array], Array]:
    """Reorder value heads, ``size`` rows each from row ``first`` on.

    Transformers has the heads of one key head side by side; llama.cpp repeats the key heads as a whole, so that the
    first of every group comes first.
    """

    def change(rows: Array) -> Array:
        tail = rows[first:].reshape(groups, heads // groups, size, *rows.shape[1:])
        return np.concatenate([rows[:first], tail.swapaxes(0, 1).reshape(rows[first:].shape)])

    return change
