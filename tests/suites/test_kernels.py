"""Protects the models' counts of kernels: what a layer dispatches in a decode step, by Transformers' classes."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)
_SHARED = {
    "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1, "num_experts_per_tok": 2,
    "max_position_embeddings": 512, "head_dim": 16,
}  # fmt: skip
# Tiny, of the families' own layers; one pass of DeepSeek-V4's Sinkhorn loop stands for the kernel that it is.
CONFIGS: dict[str, Callable[[int], Any]] = {
    "qwen3-30b-a3b-fp8": lambda layers: transformers.Qwen3MoeConfig(
        **_SHARED, num_hidden_layers=layers, moe_intermediate_size=16, num_experts=8, norm_topk_prob=True
    ),
    "qwen3.6-35b-a3b-bf16": lambda layers: transformers.Qwen3_5MoeTextConfig(
        **_SHARED, num_hidden_layers=layers, moe_intermediate_size=16, shared_expert_intermediate_size=32,
        num_experts=8, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16,
        linear_value_head_dim=16,
    ),
    "gpt-oss-120b-mxfp4": lambda layers: transformers.GptOssConfig(
        **_SHARED, num_hidden_layers=layers, intermediate_size=16, num_local_experts=8, sliding_window=8
    ),
    "deepseek-v4-flash": lambda layers: transformers.DeepseekV4Config(
        **_SHARED, num_hidden_layers=layers, moe_intermediate_size=16, n_routed_experts=8, q_lora_rank=16, o_groups=2,
        o_lora_rank=8, index_n_heads=2, index_head_dim=8, index_topk=4, sliding_window=8, hc_mult=4,
        hc_sinkhorn_iters=1, mlp_layer_types=["moe"] * layers, scoring_func="sigmoid",
    ),
}  # fmt: skip
# Functions that the models' own packages ship as one kernel, and Transformers spells out where they are not installed.
FUSED = ("torch_recurrent_gated_delta_rule", "causal_conv1d_update")


class Kernels(TorchDispatchMode):
    """Counts operations that compute; views and allocations are none."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.paused = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        view = any(one.alias_info is not None and not one.alias_info.is_write for one in function._schema.returns)
        name = function._schema.name.split("::")[1]
        if not (view or self.paused or name in ("_unsafe_view", "detach") or name.startswith(("empty", "new_empty"))):
            self.count[name] += 1
        return found


def kernels(name: str, layers: int, monkeypatch) -> int:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](layers)).eval()
    model.set_experts_implementation("batched_mm")
    modeling = importlib.import_module(type(model).__module__)
    counter = Kernels()
    for fused in FUSED:
        if hasattr(modeling, fused):
            monkeypatch.setattr(modeling, fused, as_one(getattr(modeling, fused), counter))
    tokens = torch.randint(0, 64, (1, 16))
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values
        with counter:
            model(tokens[:, :1], past_key_values=cache, use_cache=True)
    return sum(counter.count.values())


def as_one(function, counter: Kernels):
    def run(*args, **kwargs):
        counter.paused, before = True, counter.paused
        try:
            return function(*args, **kwargs)
        finally:
            counter.paused = before
            counter.count["fused"] += 1

    return run


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_layers_kernels_are_as_declared(name: str, monkeypatch) -> None:
    """Of the layers 9 to 16: their kinds repeat within eight, and what is outside of layers drops out."""
    with monkeypatch.context() as patches:
        few = kernels(name, 8, patches)
    with monkeypatch.context() as patches:
        many = kernels(name, 16, patches)
    decoding = load_model(HOME, name).decoding
    assert decoding is not None
    assert (many - few) / 8 == pytest.approx(decoding.kernels, abs=0.5)
