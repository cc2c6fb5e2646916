"""Protects the export of each family: llama.cpp's names and shapes, the checkpoint's values, refusals by name."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import torch
from family_models import CONFIGS
from gguf_samples import CHANGES, save_expressible, save_packed
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from seqmoe.reference.gguf_file.families import FAMILIES
from seqmoe.reference.gguf_file.file import cached_gguf, export_gguf
from seqmoe.reference.gguf_file.vocabulary import read_vocabulary
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.loading import load
from seqmoe.spec.errors import InputError

LAYERS = 4
ARCHITECTURES = {
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "olmoe": gguf.MODEL_ARCH.OLMOE,
    "qwen3_5_moe": gguf.MODEL_ARCH.QWEN35MOE,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
}


@pytest.fixture(scope="module", params=sorted(CHANGES))
def written(request, tmp_path_factory):
    folder = save_expressible(request.param, tmp_path_factory.mktemp(request.param))
    return request.param, folder, gguf.GGUFReader(export_gguf(folder, folder / "model.gguf"))


def test_every_tensor_has_a_name_of_the_architecture_and_none_is_missing(written):
    name, folder, reader = written
    assert reader.fields["general.architecture"].contents() == gguf.MODEL_ARCH_NAMES[ARCHITECTURES[name]]
    with safe_open(folder / "model.safetensors", "pt") as stored:
        keys = list(stored.keys())
    table = gguf.get_tensor_name_map(ARCHITECTURES[name], LAYERS)
    # The table knows sinks and time steps with other endings than a checkpoint has.
    renamed = [key.replace(".sinks", ".sinks.weight").replace(".dt_bias", ".dt_proj.bias") for key in keys]
    wanted = {table.get_name(key, try_suffixes=(".weight", ".bias")) for key in renamed if ".experts." not in key}
    found = {tensor.name for tensor in reader.tensors if "_exps." not in tensor.name}
    assert found == wanted


def test_experts_are_those_that_transformers_loads(written):
    name, folder, reader = written
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    state = model.state_dict()
    found = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    for layer in range(LAYERS):
        (stem,) = {
            key.rpartition(".")[0] for key in state if f"layers.{layer}." in key and key.endswith("experts.down_proj")
        }
        both, down = state[f"{stem}.gate_up_proj"], state[f"{stem}.down_proj"]
        if name == "gpt_oss":  # input features first, gate and up by turns
            down, gate, up = down.transpose(1, 2), both[..., 0::2].transpose(1, 2), both[..., 1::2].transpose(1, 2)
            bias = state[f"{stem}.gate_up_proj_bias"]
            np.testing.assert_array_equal(found[f"blk.{layer}.ffn_up_exps.bias"], bias[:, 1::2])
            np.testing.assert_array_equal(found[f"blk.{layer}.ffn_gate_exps.bias"], bias[:, 0::2])
        else:
            gate, up = both.chunk(2, 1)
        for part, values in (("gate", gate), ("up", up), ("down", down)):
            np.testing.assert_array_equal(found[f"blk.{layer}.ffn_{part}_exps.weight"], values, err_msg=part)


def test_count_and_width_of_the_experts_are_told(written):
    _, folder, reader = written
    config = json.loads((folder / "config.json").read_text())
    told = {key.split(".", 1)[1]: field.contents() for key, field in reader.fields.items() if "expert" in key}
    assert told["expert_count"] == (config.get("num_experts") or config["num_local_experts"])
    assert told["expert_used_count"] == 3
    assert told.get("expert_feed_forward_length", 16) == 16
    assert reader.fields["tokenizer.ggml.pre"].contents() == "qwen2"


def test_a_text_model_inside_a_composite_checkpoint_is_written_alike(tmp_path):
    folder = save_expressible("qwen3_5_moe", tmp_path)
    alone = export_gguf(folder, tmp_path / "alone.gguf")
    tensors = load_file(folder / "model.safetensors")
    inside = {name.replace("model.", "model.language_model.", 1): value for name, value in tensors.items()}
    save_file(inside, folder / "model.safetensors", {"format": "pt"})
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5_moe", "text_config": text}))
    whole = export_gguf(folder, tmp_path / "whole.gguf")
    assert whole.read_bytes() == alone.read_bytes()


def test_experts_in_mxfp4_stay_so_and_mean_the_same(tmp_path):
    folder = save_packed(tmp_path)
    found = {one.name: one for one in gguf.GGUFReader(export_gguf(folder, tmp_path / "model.gguf")).tensors}
    host = load(Checkpoint.open(folder)).host
    gate, up = (half.unflatten(0, (LAYERS, 12)) for half in host.gate_up.chunk(2, 1))
    wanted = {"gate": gate, "up": up, "down": host.down.unflatten(0, (LAYERS, 12))}
    biases = dict(zip(("gate", "up"), host.gate_up_bias.unflatten(0, (LAYERS, 12)).chunk(2, 2), strict=True))
    for layer in range(LAYERS):
        for part, values in wanted.items():
            one = found[f"blk.{layer}.ffn_{part}_exps.weight"]
            assert one.tensor_type.name == "MXFP4"
            np.testing.assert_array_equal(gguf.dequantize(one.data, one.tensor_type), values[layer], err_msg=part)
        for part, values in biases.items():
            np.testing.assert_array_equal(found[f"blk.{layer}.ffn_{part}_exps.bias"].data, values[layer], err_msg=part)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gpt_oss", "swiglu_limit", 1.0), ("gpt_oss", "tie_word_embeddings", True),
        ("gpt_oss", "layer_types", ["full_attention"] * 4), ("mixtral", "sliding_window", 8),
        ("olmoe", "norm_topk_prob", True), ("olmoe", "num_key_value_heads", 1), ("olmoe", "clip_qkv", 2.0),
        ("qwen3_5_moe", "layer_types", ["full_attention", "linear_attention"] * 2),
    ],
)  # fmt: skip
def test_what_llama_cpp_has_built_in_otherwise_is_refused(name, key, value, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_of(name) | {key: value}))
    with pytest.raises(InputError, match=rf"config\.json: {key} = .*llama\.cpp's {FAMILIES[name].architecture} is for"):
        export_gguf(tmp_path, tmp_path / "model.gguf")


def config_of(name):
    config = CONFIGS[name]()
    for key, value in CHANGES[name].items():
        setattr(config, key, value)
    return config.to_dict()


def test_a_family_that_is_not_written_is_refused_by_name_before_anything_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["deepseek_v4"]().to_dict()))
    for call in (export_gguf, cached_gguf):
        with pytest.raises(
            InputError, match="model_type = 'deepseek_v4': as GGUF these families are written: gpt_oss, "
        ):
            call(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}], "gpt-2"),
        ([{"type": "ByteLevel", "add_prefix_space": True}], None),
        ([{"type": "Whitespace"}], None),
    ],
)
def test_the_split_of_text_is_named_or_refused(tmp_path, steps, name):
    tokenizer = {
        "model": {"type": "BPE", "vocab": {"a": 0, "<|endoftext|>": 1}, "merges": []},
        "pre_tokenizer": steps[0],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    if name is None:
        with pytest.raises(InputError, match="pre-tokenization of these: gpt-2, gpt-4o, qwen2, qwen35, Sent"):
            read_vocabulary(tmp_path / "tokenizer.json", 2, None)
    else:
        assert read_vocabulary(tmp_path / "tokenizer.json", 2, None).cutting.split == name
