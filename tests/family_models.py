"""Tiny random models of every family that the runtime takes, saved as checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

_SHARED = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 512, "num_experts_per_tok": 3, "initializer_range": 0.3, "eos_token_id": 256,
    "pad_token_id": 0,
}  # fmt: skip
CONFIGS = {
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **_SHARED, head_dim=16, intermediate_size=48, moe_intermediate_size=16, num_experts=60, mlp_only_layers=[0],
    ),
    "olmoe": lambda: transformers.OlmoeConfig(**_SHARED, intermediate_size=16, num_experts=12),
    "mixtral": lambda: transformers.MixtralConfig(
        **_SHARED, intermediate_size=16, num_local_experts=12, sliding_window=8
    ),
    "qwen3_5_moe": lambda: transformers.Qwen3_5MoeTextConfig(
        **_SHARED, head_dim=16, moe_intermediate_size=16, shared_expert_intermediate_size=32, num_experts=72,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **_SHARED, head_dim=16, intermediate_size=16, num_local_experts=12, sliding_window=8, swiglu_limit=1.0
    ),
    "deepseek_v4": lambda: transformers.DeepseekV4Config(
        **_SHARED | {"num_attention_heads": 4}, head_dim=16, moe_intermediate_size=16, n_routed_experts=12,
        q_lora_rank=16, o_groups=2, o_lora_rank=8, index_n_heads=2, index_head_dim=8, index_topk=4, sliding_window=8,
        hc_mult=2, mlp_layer_types=["hash_moe", "moe", "moe", "moe"], scoring_func="sigmoid", swiglu_limit=1.0,
    ),
}  # fmt: skip


def save_tiny(
    name: str,
    folder: Path,
    tokenizer: Path,
    dtype: torch.dtype = torch.float32,
    changes: dict[str, Any] | None = None,
    **how: Any,
) -> Any:
    """Write a random model of the family with the tokenizer of another checkpoint; returns it, eager and in float32.

    ``changes`` to its configuration; ``how`` goes to Transformers' ``save_pretrained``. Zero-initialised parts (biases,
    tables) get numbers too.
    """
    torch.manual_seed(0)
    config = CONFIGS[name]()
    for key, value in (changes or {}).items():
        setattr(config, key, value)
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
    experts = getattr(model.config, "num_local_experts", None) or model.config.num_experts
    with torch.no_grad():
        for key, value in [*model.named_parameters(), *model.named_buffers()]:
            if "bias" in key and "inv_freq" not in key:
                value.normal_(std=0.3)
            elif "tid2eid" in key:
                for row in value:
                    row.copy_(torch.randperm(experts)[: len(row)])
    model.to(dtype).save_pretrained(folder, **how)
    transformers.AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    return model.float()
