"""Protects the export: tensors, vocabulary and hyperparameters reach GGUF unchanged, or nothing is written."""

from __future__ import annotations

import json
import shutil

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from seqmoe.reference import tokenizer
from seqmoe.reference.export import export, export_hf
from seqmoe.reference.gguf_file.file import cached_gguf, export_gguf
from seqmoe.spec.errors import InputError

LAYERS, EXPERTS, WIDTH, VOCABULARY = 2, 6, 32, 320
TEXT = ["the cat sat on the mat, and the hat was flat", "def mat(cat):\n    return cat.hat + 12\n"] * 8


def make_checkpoint(folder, dtype=torch.bfloat16, tied=True, **saving):
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=64, moe_intermediate_size=WIDTH,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=EXPERTS,
        num_experts_per_tok=3, norm_topk_prob=True, max_position_embeddings=256, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 50000.0}, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).to(dtype).save_pretrained(folder, **saving)
    tokenizer.train(TEXT, VOCABULARY - 20).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def tensors(path):
    # GGUFReader gives the bytes' own order, [experts, out, in], like Hugging Face's.
    return {tensor.name: np.asarray(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def field(path, name):
    return gguf.GGUFReader(path).fields[name].contents()


def expected(folder):
    """The tensors under llama.cpp's names, from the model that Transformers loads rather than from the file."""
    state = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3MOE, LAYERS)
    wanted = {}
    for name, value in state.items():
        if name.endswith("gate_up_proj"):
            prefix = f"blk.{name.split('.')[2]}.ffn_"
            wanted[f"{prefix}gate_exps.weight"] = value[:, :WIDTH]
            wanted[f"{prefix}up_exps.weight"] = value[:, WIDTH:]
        elif name.endswith("experts.down_proj"):
            wanted[f"blk.{name.split('.')[2]}.ffn_down_exps.weight"] = value
        else:
            wanted[names.get_name(name, try_suffixes=(".weight",))] = value
    return {name: value.numpy() for name, value in wanted.items()}


def test_matrices_in_bfloat16_are_the_checkpoints_own_bits(tmp_path, checkpoint):
    found = {t.name: t for t in gguf.GGUFReader(export_gguf(checkpoint, tmp_path / "m.gguf", "bf16")).tensors}
    wanted = expected(checkpoint)
    wanted.pop("output.weight")
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        plain = value.ndim < 2 or "ffn_gate_inp" in name
        assert found[name].tensor_type.name == ("F32" if plain else "BF16")
        values = gguf.dequantize(found[name].data, found[name].tensor_type)
        np.testing.assert_array_equal(values, value, err_msg=name)
    with pytest.raises(InputError, match="GGUF type 'f16' is unknown"):
        export_gguf(checkpoint, tmp_path / "other.gguf", "f16")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_is_equal(tmp_path, dtype, tied):
    folder = make_checkpoint(tmp_path / "model", dtype, tied)
    found = tensors(export_gguf(folder, tmp_path / "model.gguf"))
    wanted = expected(folder)
    if tied:  # llama.cpp takes the embedding where there is no output.weight
        assert np.array_equal(wanted.pop("output.weight"), wanted["token_embd.weight"])
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_vocabulary_and_merges(checkpoint, tmp_path):
    path = export_gguf(checkpoint, tmp_path / "model.gguf")
    trained = tokenizer.train(TEXT, VOCABULARY - 20)
    count = len(trained)
    tokens, kinds = field(path, "tokenizer.ggml.tokens"), field(path, "tokenizer.ggml.token_type")
    assert len(tokens) == len(kinds) == VOCABULARY
    assert tokens[:count] == trained.convert_ids_to_tokens(list(range(count)))
    assert len(set(tokens)) == VOCABULARY
    assert kinds[0] == gguf.TokenType.CONTROL
    assert set(kinds[1:count]) == {gguf.TokenType.NORMAL}
    assert set(kinds[count:]) == {gguf.TokenType.UNUSED}
    merges = json.loads((checkpoint / "tokenizer.json").read_text())["model"]["merges"]
    assert field(path, "tokenizer.ggml.merges") == [" ".join(pair) for pair in merges]
    assert merges
    assert field(path, "tokenizer.ggml.pre") == "qwen2"
    assert field(path, "tokenizer.ggml.eos_token_id") == 0
    assert field(path, "tokenizer.ggml.add_bos_token") is False


def test_hyperparameters(checkpoint, tmp_path):
    path = export_gguf(checkpoint, tmp_path / "model.gguf")
    found = {
        name: field(path, f"qwen3moe.{name}")
        for name in (
            "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
            "attention.key_length", "expert_count", "expert_used_count", "expert_feed_forward_length",
            "context_length", "rope.freq_base",
        )
    }  # fmt: skip
    assert list(found.values()) == [LAYERS, 48, 4, 2, 16, EXPERTS, 3, WIDTH, 256, 50000.0]


def test_fused_and_sharded_checkpoints_give_the_same_file(checkpoint, tmp_path):
    fused = shutil.copytree(checkpoint, tmp_path / "same")
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    state = {name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    assert any(name.endswith("gate_up_proj") for name in state)
    save_file(state, fused / "model.safetensors")
    sharded = make_checkpoint(tmp_path / "sharded" / "same", max_shard_size="50KB")
    assert len(list(sharded.glob("model-*.safetensors"))) > 1
    wanted = tensors(export_gguf(checkpoint, tmp_path / "plain.gguf"))
    for folder in (fused, sharded):
        found = tensors(export_gguf(folder, tmp_path / "other.gguf"))
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "granitemoe"), ("norm_topk_prob", False), ("attention_bias", True), ("hidden_act", "gelu"),
        ("use_sliding_window", True), ("mlp_only_layers", [0]),
        ("rope_parameters", {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
    ],
)  # fmt: skip
def test_what_llama_cpp_would_answer_differently_is_refused(checkpoint, tmp_path, key, value):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {key: value}
    (folder / "config.json").write_text(json.dumps(config))
    named = "decoder_sparse_step" if key == "mlp_only_layers" else key
    with pytest.raises(InputError, match=rf"config\.json: {named} = "):
        export_gguf(folder, tmp_path / "model.gguf")


def test_another_pre_tokenization_is_refused(checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    declared = json.loads((folder / "tokenizer.json").read_text())
    declared["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] += "|x"
    (folder / "tokenizer.json").write_text(json.dumps(declared))
    with pytest.raises(InputError, match="pre-tokenization"):
        export_gguf(folder, tmp_path / "model.gguf")


def test_an_incomplete_checkpoint_leaves_no_file(checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.experts.5.down_proj.weight"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.experts\.5\.down_proj\.weight' is in none of its files"):
        export_gguf(folder, tmp_path / "out" / "model.gguf")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_cache_follows_the_content(checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    first = cached_gguf(folder, tmp_path / "cache")
    written = first.stat().st_mtime_ns
    assert cached_gguf(folder, tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == written
    state = load_file(folder / "model.safetensors")
    state["model.norm.weight"] += 1
    save_file(state, folder / "model.safetensors")
    second = cached_gguf(folder, tmp_path / "cache")
    assert second != first
    assert not np.array_equal(tensors(first)["output_norm.weight"], tensors(second)["output_norm.weight"])


def test_hugging_face_export_loads_and_answers_alike(checkpoint, tmp_path):
    copy = export_hf(checkpoint, tmp_path / "deep" / "copy")
    ids = torch.tensor([[5, 9, 70, 3]])
    logits = [AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in (checkpoint, copy)]
    assert torch.equal(*logits)
    assert (copy / "tokenizer.json").read_bytes() == (checkpoint / "tokenizer.json").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        export_hf(checkpoint, copy)
    with pytest.raises(InputError, match=r"no config\.json"):
        export_hf(tmp_path / "nowhere", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_form_chooses_what_is_written(checkpoint, tmp_path):
    assert (export(checkpoint, "hf", tmp_path / "hf") / "config.json").is_file()
    written = export(checkpoint, "gguf", tmp_path / "gguf")
    assert written.parent == tmp_path / "gguf"
    assert field(written, "general.architecture") == "qwen3moe"
    with pytest.raises(InputError, match="format 'ggml' is unknown; did you mean 'gguf'"):
        export(checkpoint, "ggml", tmp_path / "other")
