"""A tiny random model of every family: 12 experts (no power of two), top-3, weights large enough to matter."""

from __future__ import annotations

import torch
import transformers

VOCABULARY, EXPERTS, TOP_K = 300, 12, 3
_BASE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 512, "num_experts_per_tok": TOP_K, "eos_token_id": 256,
    "pad_token_id": 0, "bos_token_id": None,
}  # fmt: skip
_BUILDERS = {
    "qwen3_moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(
            **_BASE, head_dim=16, intermediate_size=48, moe_intermediate_size=32, num_experts=EXPERTS,
            norm_topk_prob=True, mlp_only_layers=[1],
        )
    ),
    "qwen3_5_moe": lambda: transformers.Qwen3_5MoeForCausalLM(
        transformers.Qwen3_5MoeTextConfig(
            **_BASE, head_dim=16, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=EXPERTS,
            linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
        )
    ),
    "gpt_oss": lambda: transformers.GptOssForCausalLM(
        transformers.GptOssConfig(
            **_BASE, head_dim=16, intermediate_size=32, num_local_experts=EXPERTS, sliding_window=8
        )
    ),
    "deepseek_v4": lambda: transformers.DeepseekV4ForCausalLM(
        transformers.DeepseekV4Config(
            **_BASE | {"num_hidden_layers": 5}, moe_intermediate_size=32, head_dim=32, qk_rope_head_dim=16,
            q_lora_rank=32, o_groups=2, o_lora_rank=16, index_n_heads=2, index_head_dim=16, index_topk=8,
            n_routed_experts=EXPERTS, n_shared_experts=1, sliding_window=16,
        )
    ),
    "olmoe": lambda: transformers.OlmoeForCausalLM(
        transformers.OlmoeConfig(**_BASE, intermediate_size=32, num_experts=EXPERTS)
    ),
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**_BASE, intermediate_size=32, num_local_experts=EXPERTS)
    ),
}  # fmt: skip
FAMILIES = tuple(_BUILDERS)


def build(name, seed=0):
    """The model, and its family's adapter."""
    from seqmoe.adapters.base import family_of

    torch.manual_seed(seed)
    model = _BUILDERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dtype.is_floating_point:
                parameter.normal_(0, 0.3)
        for router in family_of(name).routers(model):
            if hasattr(router, "e_score_correction_bias"):
                router.e_score_correction_bias.normal_(0, 0.2)
            if hasattr(router, "tid2eid"):
                router.tid2eid.copy_(torch.rand(VOCABULARY, EXPERTS).argsort(dim=1)[:, :TOP_K])
    return model, family_of(name)
