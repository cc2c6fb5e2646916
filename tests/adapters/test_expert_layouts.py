"""Protects the canonical expert layout: any stored layout becomes it, and means what Transformers' experts compute."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import transformers
from torch.nn.functional import linear, silu

from seqmoe.adapters.base import ExpertFormat, family_of
from seqmoe.adapters.layout import Piece
from seqmoe.runtime.placement import ExpertPool, move_experts_to_host
from seqmoe.spec.errors import InputError

TOKENS, TOP_K = 9, 4
# Expert counts that are no power of two broke loaders elsewhere; widths differ from the hidden size on purpose.
CONFIGS = {
    "qwen3_moe": (
        "Qwen3MoeExperts",
        transformers.Qwen3MoeConfig(hidden_size=24, moe_intermediate_size=16, num_experts=60),
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeExperts",
        transformers.Qwen3_5MoeTextConfig(hidden_size=24, moe_intermediate_size=16, num_experts=72),
    ),
    "gpt_oss": (
        "GptOssExperts",
        transformers.GptOssConfig(hidden_size=24, intermediate_size=16, num_local_experts=60, swiglu_limit=0.5),
    ),
    "deepseek_v4": (
        "DeepseekV4Experts",
        transformers.DeepseekV4Config(
            hidden_size=24, moe_intermediate_size=16, n_routed_experts=72, swiglu_limit=0.5, num_hidden_layers=4
        ),
    ),
    "olmoe": ("OlmoeExperts", transformers.OlmoeConfig(hidden_size=24, intermediate_size=16, num_experts=60)),
    "mixtral": ("MixtralExperts", transformers.MixtralConfig(hidden_size=24, intermediate_size=16)),
}


def _module(name: str) -> torch.nn.Module:
    """An experts module of the family with random parameters, large enough for clamps to matter."""
    class_name, config = CONFIGS[name]
    folder = name.removesuffix("_text")
    config._experts_implementation = "eager"
    module = getattr(import_module(f"transformers.models.{folder}.modeling_{folder}"), class_name)(config)
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def _computed(pool: ExpertPool, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The MoE by its definition, expert by expert, from a pool in canonical layout."""
    form, out = pool.format, torch.zeros_like(hidden)
    for token in range(len(hidden)):
        for expert, weight in zip(index[token].tolist(), weights[token], strict=True):
            bias = pool.gate_up_bias[expert] if form.bias else None
            gate, up = linear(hidden[token], pool.gate_up[expert], bias).chunk(2)
            if form.activation == "swiglu":
                inner = silu(gate) * up
            else:
                gate, up = gate.clamp(max=form.limit), up.clamp(-form.limit, form.limit)
                oai = form.activation == "swiglu_oai"
                inner = (up + 1) * gate * torch.sigmoid(form.alpha * gate) if oai else silu(gate) * up
            down_bias = pool.down_bias[expert] if form.bias else None
            out[token] += weight * linear(inner, pool.down[expert], down_bias)
    return out


@pytest.mark.parametrize("name", CONFIGS)
def test_canonical_experts_compute_what_transformers_does(name):
    family, module = family_of(name), _module(name)
    experts = family.expert_count(CONFIGS[name][1])
    hidden, weights = torch.randn(TOKENS, 24), torch.rand(TOKENS, TOP_K)
    index = torch.stack([torch.randperm(experts)[:TOP_K] for _ in range(TOKENS)])
    with torch.no_grad():
        expected = module(hidden, index, weights)
        pool = move_experts_to_host([module], family.module_layout, family.expert_format(CONFIGS[name][1], "float32"))
        got = _computed(pool, hidden, index, weights)
    assert pool.entries == experts
    assert torch.allclose(got, expected, atol=1e-4, rtol=1e-4)
    assert not list(module.parameters())


@pytest.mark.parametrize("name", CONFIGS)
def test_formats_of_the_families(name):
    form = family_of(name).expert_format(CONFIGS[name][1], "bfloat16")
    plain = 3 * 24 * 16 * 2
    special = {
        "gpt_oss": ("swiglu_oai", 0.5, 1.702, True, plain + (2 * 16 + 24) * 2),
        "deepseek_v4": ("swiglu_clamped", 0.5, 0.0, False, plain),
    }
    assert (form.activation, form.limit, form.alpha, form.bias, form.expert_bytes) == special.get(
        name, ("swiglu", 0.0, 0.0, False, plain)
    )


def test_bfloat16_pool_shows_its_bits_to_the_core():
    form = ExpertFormat(8, 4, "bfloat16", bias=True)
    pool = ExpertPool.empty(3, form)
    pool.gate_up[1, 2, 3] = 1.0
    assert pool.arrays[0].dtype == pool.options["down_bias"].dtype == "uint16"
    assert pool.arrays[0][1, 2, 3] == 0x3F80  # the upper half of 1.0 in float32
    assert pool.expert_bytes == (3 * 8 * 4 + 2 * 4 + 8) * 2


def test_a_link_moves_every_part_of_an_expert():
    form = ExpertFormat(8, 4, "bfloat16", bias=True)
    host, slots = ExpertPool.empty(6, form), ExpertPool.empty(2, form)
    for tensor in host.tensors.values():
        tensor.copy_(torch.randn(tensor.shape))
    link = host.link_to(slots, 0.0)
    link.transfer(5, 1)
    for name, tensor in slots.tensors.items():
        assert torch.equal(tensor[1], host.tensors[name][5])
        assert not tensor[0].any()


@pytest.mark.parametrize(
    ("piece", "shape"),
    [
        (Piece("x", "gate_up"), (6, 4)),
        (Piece("x", "gate_up", half=1), (3, 4)),
        (Piece("x", "gate_up", transposed=True), (4, 6)),
        (Piece("x", "gate_up", transposed=True, interleaved=True), (4, 6)),
    ],
)
def test_placing_a_piece_inverts_its_layout(piece, shape):
    assert piece.tensors((6, 4)) == (("x", shape),)
    stored = torch.arange(24.0)[: shape[0] * shape[1]].reshape(shape)
    part = torch.full((6, 4), -1.0)
    piece.place((stored,), part)
    rows = stored.T if piece.transposed else stored
    order = [0, 2, 4, 1, 3, 5] if piece.interleaved else range(len(rows))
    filled = part[piece.rows((6, 4))]
    assert torch.equal(filled, rows[list(order)])
    assert int((part == -1).sum()) == part.numel() - filled.numel()


def test_unknown_types_are_refused():
    with pytest.raises(InputError, match="float32 or bfloat16"):
        ExpertFormat(8, 4, "float16")
