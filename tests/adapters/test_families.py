"""Protects what every family says of itself: geometry, router kind, hash layers, and what the runtime refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import transformers

from seqmoe.adapters.base import family_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.trace import ROUTERS

# The released model's geometry, from its card: layers, experts, top-k, and the bytes of an expert in float32.
RELEASED = {
    "qwen3_moe": (
        transformers.Qwen3MoeConfig(num_hidden_layers=48, hidden_size=2048, moe_intermediate_size=768, num_experts=128),
        Geometry(48, 128, 8, 3 * 2048 * 768 * 4),
    ),
    "qwen3_5_moe_text": (
        transformers.Qwen3_5MoeTextConfig(num_hidden_layers=40, hidden_size=2048, moe_intermediate_size=512),
        Geometry(40, 256, 8, 3 * 2048 * 512 * 4),
    ),
    "gpt_oss": (
        transformers.GptOssConfig(
            num_hidden_layers=36, hidden_size=2880, intermediate_size=2880, num_local_experts=128
        ),
        Geometry(36, 128, 4, 3 * 2880 * 2880 * 4),
    ),
    "deepseek_v4": (
        transformers.DeepseekV4Config(num_hidden_layers=43, hidden_size=4096, moe_intermediate_size=2048),
        Geometry(43, 256, 6, 3 * 4096 * 2048 * 4),
    ),
    "olmoe": (
        transformers.OlmoeConfig(hidden_size=2048, intermediate_size=1024, num_hidden_layers=16),
        Geometry(16, 64, 8, 3 * 2048 * 1024 * 4),
    ),
    "mixtral": (
        transformers.MixtralConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32),
        Geometry(32, 8, 2, 3 * 4096 * 14336 * 4),
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_geometry_of_released_models(name):
    config, expected = RELEASED[name]
    assert config.model_type == name
    assert family_of(name).shape(config) == expected


@pytest.mark.parametrize("name", RELEASED)
def test_runtime_counts_bytes_of_its_own_format(name):
    config, expected = RELEASED[name]
    biases = (2 * 2880 + 2880) * 4 if name == "gpt_oss" else 0
    geometry = family_of(name).geometry(config)
    assert geometry == replace(expected, expert_bytes=expected.expert_bytes + biases)
    assert family_of(name).geometry(config, "bfloat16").expert_bytes * 2 == geometry.expert_bytes


@pytest.mark.parametrize("name", [name for name in RELEASED if name != "gpt_oss"])
def test_runtime_takes_silu_only(name):
    with pytest.raises(InputError, match="silu"):
        family_of(name).geometry(type(RELEASED[name][0])(hidden_act="gelu"))


def test_router_kinds():
    kinds = {name: family_of(name).router_kind(config) for name, (config, _) in RELEASED.items()}
    assert set(kinds.values()) <= set(ROUTERS)
    assert kinds == {
        "qwen3_moe": "softmax",  # as the class is by default; the released 30B model sets norm_topk_prob
        "qwen3_5_moe_text": "softmax_renormalised",
        "gpt_oss": "softmax_renormalised",
        "deepseek_v4": "sqrtsoftplus",
        "olmoe": "softmax",
        "mixtral": "softmax_renormalised",
    }
    renormalised = transformers.Qwen3MoeConfig(norm_topk_prob=True)
    assert family_of("qwen3_moe").router_kind(renormalised) == "softmax_renormalised"
    assert family_of("deepseek_v4").router_kind(transformers.DeepseekV4Config(scoring_func="sigmoid")) == "sigmoid"


def test_only_deepseek_v4_has_hash_layers():
    layers = {name: family_of(name).hash_layers(config) for name, (config, _) in RELEASED.items()}
    assert layers.pop("deepseek_v4") == (0, 1, 2)
    assert set(layers.values()) == {()}


def test_dense_layers_of_qwen3_are_not_counted():
    config = transformers.Qwen3MoeConfig(num_hidden_layers=8, decoder_sparse_step=2, mlp_only_layers=[3])
    assert family_of("qwen3_moe").moe_layers(config) == (1, 5, 7)
    assert family_of("qwen3_moe").shape(config).layers == 3


def test_composite_configuration_is_read_through():
    config = transformers.Qwen3_5MoeConfig()
    family = family_of(config.model_type)
    assert family.shape(config) == family.shape(config.get_text_config())


def test_unknown_family_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="'qwen3_moe'"):
        family_of("qwen2_moe")
