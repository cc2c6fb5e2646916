"""Tiny random checkpoints of every family that llama.cpp can express."""

from __future__ import annotations

import json

import torch
from family_models import save_tiny
from safetensors.torch import load_file, save_file

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


def save_packed(folder):
    """GPT-OSS with its experts in MXFP4, of moderate size."""
    save_expressible("gpt_oss", folder, intermediate_size=64)
    tensors, generator = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(1)
    for name in [
        name for name in tensors if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj")
    ]:
        experts, columns, rows = tensors.pop(name).shape
        size = (experts, rows, columns // 32)
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*size, 16), dtype=torch.uint8, generator=generator)
        tensors[f"{name}_scales"] = torch.randint(122, 125, size, dtype=torch.uint8, generator=generator)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
