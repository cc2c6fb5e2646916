"""Export of a Qwen3-MoE checkpoint for other engines: a Hugging Face folder as it is, or one GGUF file."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from seqmoe.reference.checkpoint_weights import Weights, weight_files
from seqmoe.reference.gguf_vocabulary import Vocabulary, read_vocabulary
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.files import files_sha256, replacing

# Part of the cache key: raise it whenever the bytes that `export_gguf` writes for a checkpoint change.
GGUF_REVISION = 1
FORMS = ("hf", "gguf")
GGUF_TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}
_HF_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "README.md")

# Hugging Face name inside a layer -> llama.cpp's name for architecture qwen3moe.
_LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
}


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]

    def stored(self, kind: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
        """Norms and routers stay float32, as llama.cpp's own converter keeps them."""
        small = len(self.shape) < 2 or "ffn_gate_inp" in self.name
        return gguf.GGMLQuantizationType.F32 if small else kind


def export(checkpoint: Path, form: str, folder: Path) -> Path:
    """Write the checkpoint into ``folder``: ``form`` hf makes it a checkpoint, gguf puts one file into it.

    Returns what was written. Raises `InputError` for another form, and as `export_hf` and `export_gguf` do.
    """
    if form not in FORMS:
        raise InputError(f"format {form!r} is unknown; {nearest(form, FORMS)}")
    if form == "hf":
        return export_hf(checkpoint, folder)
    return export_gguf(checkpoint, folder / f"{checkpoint.name}.gguf")


def export_hf(checkpoint: Path, out: Path) -> Path:
    """Copy the checkpoint's model and tokenizer files into the new folder ``out``; returns it.

    The folder appears whole or not at all. Raises `InputError` if ``checkpoint`` is no Qwen3-MoE checkpoint, or ``out``
    exists and is not an empty folder.
    """
    _read_config(checkpoint)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists already; choose a new folder, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as staging:
        folder = Path(staging) / out.name
        folder.mkdir()
        weights = [path.name for path in weight_files(checkpoint)]
        for name in (*_HF_FILES, "model.safetensors.index.json", *weights):
            if (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, folder / name)
        os.replace(folder, out)
    return out


def export_gguf(checkpoint: Path, out: Path, matrices: str = "f32") -> Path:
    """Write the checkpoint as one GGUF file (architecture qwen3moe); returns ``out``.

    ``matrices`` is f32 or bf16. bfloat16 weights become float32 without loss, so that llama.cpp's greedy tokens can be
    compared with ours; as bf16 they are what the checkpoint stores, but llama.cpp then rounds activations too. Tensors
    are written one after another: memory stays at one layer's experts. The file appears whole or not at all. Raises
    `InputError` for a checkpoint that llama.cpp's qwen3moe cannot express, naming the key of config.json.
    """
    if matrices not in GGUF_TYPES:
        raise InputError(f"GGUF type {matrices!r} is unknown; {nearest(matrices, GGUF_TYPES)}")
    kind, file_type = GGUF_TYPES[matrices]
    config = _read_config(checkpoint)
    vocabulary = read_vocabulary(checkpoint / "tokenizer.json", int(config["vocab_size"]), _end_of_text(config))
    out.parent.mkdir(parents=True, exist_ok=True)
    with Weights(checkpoint) as weights, replacing(out) as partial:
        writer = gguf.GGUFWriter(partial, "qwen3moe")
        writer.add_file_type(file_type)
        _write_hyperparameters(writer, config, checkpoint.name)
        _write_vocabulary(writer, vocabulary)
        tensors = list(_tensors(weights, config))
        for tensor in tensors:
            _announce(writer, tensor, tensor.stored(kind))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            values = tensor.read()
            if values.shape != tensor.shape:
                raise InputError(
                    f"{checkpoint}: {tensor.name} has shape {values.shape}, config.json says {tensor.shape}"
                )
            writer.write_tensor_data(gguf.quantize(np.ascontiguousarray(values), tensor.stored(kind)))
        writer.close()
    return out


def cached_gguf(checkpoint: Path, cache: Path, matrices: str = "f32") -> Path:
    """The checkpoint's GGUF inside the folder ``cache``, named by the checkpoint's content and written only once."""
    out = cache / f"{checkpoint.name}-{checkpoint_hash(checkpoint)[:16]}-{matrices}.gguf"
    return out if out.is_file() else export_gguf(checkpoint, out, matrices)


def checkpoint_hash(checkpoint: Path) -> str:
    """SHA-256 (hex) over the files that an export reads, their names, and the exporter's revision."""
    _read_config(checkpoint)
    paths = (checkpoint / "config.json", checkpoint / "tokenizer.json", *weight_files(checkpoint))
    return files_sha256(paths, prefix=f"gguf {GGUF_REVISION}")


def _announce(writer: gguf.GGUFWriter, tensor: _Tensor, kind: gguf.GGMLQuantizationType) -> None:
    """Enter a tensor into the file's table; the writer takes the shape of other types than float32 in bytes."""
    item = 4 if kind == gguf.GGMLQuantizationType.F32 else 2
    size = int(np.prod(tensor.shape)) * item
    if item == 4:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), size)
    else:
        in_bytes = (*tensor.shape[:-1], tensor.shape[-1] * item)
        writer.add_tensor_info(tensor.name, in_bytes, np.dtype(np.uint8), size, raw_dtype=kind)


def _read_config(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / "config.json"
    if not path.is_file():
        raise InputError(f"{checkpoint}: no config.json there; give a Hugging Face checkpoint folder")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    sparse = config.get("decoder_sparse_step", 1) == 1 and not config.get("mlp_only_layers")
    # llama.cpp's qwen3moe has each of these built in: a checkpoint that differs would run, and answer differently.
    for key, right in (
        ("model_type", config.get("model_type") == "qwen3_moe"),
        ("hidden_act", config.get("hidden_act", "silu") == "silu"),
        ("norm_topk_prob", config.get("norm_topk_prob") is True),
        ("attention_bias", not config.get("attention_bias")),
        ("use_sliding_window", not config.get("use_sliding_window")),
        ("rope_parameters", rope.get("rope_type", "default") == "default"),
        ("decoder_sparse_step", sparse),
    ):
        if not right:
            raise InputError(
                f"{path}: {key} = {config.get(key)!r}: the export is for Qwen3-MoE with every layer sparse, "
                "silu, normalised top-k weights, plain rotary positions, no attention bias and no window"
            )
    return config


def _end_of_text(config: dict[str, Any]) -> int | None:
    eos = config.get("eos_token_id")
    return eos[0] if isinstance(eos, list) else eos


def _experts(config: dict[str, Any]) -> int:
    return int(config.get("num_experts") or config["num_local_experts"])


def _write_hyperparameters(writer: gguf.GGUFWriter, config: dict[str, Any], name: str) -> None:
    rope = config.get("rope_parameters") or {}
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(_head_size(config))
    writer.add_value_length(_head_size(config))
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10000.0))))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(_experts(config))
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])


def _write_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_eos_token_id(vocabulary.end_of_text)
    writer.add_add_bos_token(False)


def _head_size(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _tensors(weights: Weights, config: dict[str, Any]) -> Iterator[_Tensor]:
    hidden, width, head = config["hidden_size"], config["moe_intermediate_size"], _head_size(config)
    experts, vocabulary = _experts(config), config["vocab_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,), "ffn_norm": (hidden,), "attn_q_norm": (head,), "attn_k_norm": (head,),
        "attn_q": (queries, hidden), "attn_k": (keys, hidden), "attn_v": (keys, hidden),
        "attn_output": (hidden, queries), "ffn_gate_inp": (experts, hidden),
    }  # fmt: skip
    expert_shapes = {"gate": (experts, width, hidden), "up": (experts, width, hidden), "down": (experts, hidden, width)}

    def plain(name: str, source: str, shape: tuple[int, ...]) -> _Tensor:
        return _Tensor(f"{name}.weight", shape, lambda: weights.read(f"{source}.weight"))

    yield plain("token_embd", "model.embed_tokens", (vocabulary, hidden))
    yield plain("output_norm", "model.norm", (hidden,))
    if not config.get("tie_word_embeddings"):
        yield plain("output", "lm_head", (vocabulary, hidden))
    for layer in range(config["num_hidden_layers"]):
        for source, name in _LAYER_TENSORS.items():
            yield plain(f"blk.{layer}.{name}", f"model.layers.{layer}.{source}", shapes[name])
        for part, shape in expert_shapes.items():
            yield _Tensor(
                f"blk.{layer}.ffn_{part}_exps.weight",
                shape,
                lambda layer=layer, part=part: weights.experts(layer, part, experts),  # type: ignore[misc]
            )
