"""Tiny random checkpoints of every family that llama.cpp can express."""

from __future__ import annotations

from family_models import save_tiny

from seqmoe.reference import tokenizer

# What of the families' tiny configurations llama.cpp has built in otherwise.
PLAIN = {"rope_type": "default", "rope_theta": 150000.0}
CHANGES = {
    "gpt_oss": {"swiglu_limit": 7.0, "rope_parameters": PLAIN},
    "mixtral": {"sliding_window": None},
    "olmoe": {"num_key_value_heads": 2},
    "qwen3_5_moe": {},
    "qwen3_moe": {"mlp_only_layers": [], "norm_topk_prob": True},
}


def save_expressible(name, folder, **changes):
    """A random model of the family with a tokenizer that cuts as Qwen2's; most of its tokens are single bytes."""
    text = folder / "tokenizer"
    tokenizer.train(["abc abd " * 9], 260).save_pretrained(text)
    save_tiny(name, folder, text, changes=CHANGES[name] | {"eos_token_id": 0} | changes)
    return folder
