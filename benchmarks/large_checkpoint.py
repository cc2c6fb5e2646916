"""A Qwen3-MoE checkpoint of 2.1 GiB of random experts, for what must be larger than memory; made once, then kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, Qwen3MoeConfig

from seqmoe.reference.gguf_file.file import cached_gguf
from seqmoe.reference.release import CHECKPOINT

LAYERS, EXPERTS, TOP_K, HIDDEN, WIDTH = 12, 60, 4, 1024, 512
EXPERT_BYTES = 3 * HIDDEN * WIDTH * 2
TOTAL_BYTES = LAYERS * EXPERTS * EXPERT_BYTES
_HEADS, _KEYS, _HEAD = 8, 2, 64


def large_checkpoint(cache: Path) -> tuple[Path, Path]:
    """The folder (bfloat16, a shard for each layer) and the same weights as GGUF in bfloat16, inside ``cache``."""
    folder = cache / f"qwen3moe-{LAYERS}x{EXPERTS}-{HIDDEN}x{WIDTH}"
    if not (folder / "config.json").is_file():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(partial)
        partial.rename(folder)
    return folder, cached_gguf(folder, cache, "bf16")


def _write(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    tokenizer.save_pretrained(folder)
    vocabulary = len(tokenizer)
    generator = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        """Outputs about as large as inputs, so that no layer drowns and routing stays diverse."""
        return (torch.randn(rows, columns, generator=generator) / columns**0.5).bfloat16()

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    outside = {
        "model.embed_tokens.weight": matrix(vocabulary, HIDDEN) * HIDDEN**0.5,
        "lm_head.weight": matrix(vocabulary, HIDDEN),
        "model.norm.weight": ones,
    }
    files = {name: "model-00000.safetensors" for name in outside}
    save_file(outside, folder / "model-00000.safetensors", {"format": "pt"})
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        head = torch.ones(_HEAD, dtype=torch.bfloat16)
        tensors = {
            f"{stem}.input_layernorm.weight": ones.clone(),
            f"{stem}.post_attention_layernorm.weight": ones.clone(),
            f"{stem}.self_attn.q_proj.weight": matrix(_HEADS * _HEAD, HIDDEN),
            f"{stem}.self_attn.k_proj.weight": matrix(_KEYS * _HEAD, HIDDEN),
            f"{stem}.self_attn.v_proj.weight": matrix(_KEYS * _HEAD, HIDDEN),
            f"{stem}.self_attn.o_proj.weight": matrix(HIDDEN, _HEADS * _HEAD),
            f"{stem}.self_attn.q_norm.weight": head,
            f"{stem}.self_attn.k_norm.weight": head.clone(),
            f"{stem}.mlp.gate.weight": matrix(EXPERTS, HIDDEN),
        }
        for expert in range(EXPERTS):
            one = f"{stem}.mlp.experts.{expert}"
            tensors[f"{one}.gate_proj.weight"] = matrix(WIDTH, HIDDEN)
            tensors[f"{one}.up_proj.weight"] = matrix(WIDTH, HIDDEN)
            tensors[f"{one}.down_proj.weight"] = matrix(HIDDEN, WIDTH)
        name = f"model-{layer + 1:05}.safetensors"
        save_file(tensors, folder / name, {"format": "pt"})
        files |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": sum(file.stat().st_size for file in folder.glob("*.safetensors"))}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index | {"weight_map": files}))
    config = Qwen3MoeConfig(
        vocab_size=vocabulary, hidden_size=HIDDEN, intermediate_size=WIDTH, moe_intermediate_size=WIDTH,
        num_hidden_layers=LAYERS, num_attention_heads=_HEADS, num_key_value_heads=_KEYS, head_dim=_HEAD,
        num_experts=EXPERTS, num_experts_per_tok=TOP_K, norm_topk_prob=True, max_position_embeddings=1024,
        tie_word_embeddings=False, eos_token_id=0, bos_token_id=0, dtype="bfloat16",
    )  # fmt: skip
    config.architectures = ["Qwen3MoeForCausalLM"]
    config.save_pretrained(folder)
