"""Protects loading: every stored layout gives the pool that Transformers' own weights give, and broken files say so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from family_models import CONFIGS, save_tiny
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from seqmoe.adapters.base import family_of
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.loading import load
from seqmoe.runtime.placement import ExpertPool, move_experts_to_host
from seqmoe.spec.errors import InputError

SHARDS = {"max_shard_size": "60KB"}
FUSED = {"save_original_format": False}


@pytest.mark.parametrize("how", [{}, SHARDS, FUSED], ids=["one file", "shards", "fused"])
@pytest.mark.parametrize("name", CONFIGS)
def test_streamed_weights_are_transformers_weights(name, how, tiny_checkpoint, tmp_path):
    model = save_tiny(name, tmp_path, tiny_checkpoint, **how)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (how == SHARDS)
    loaded = load(Checkpoint.open(tmp_path))
    family = family_of(model.config.model_type)
    form = family.expert_format(model.config, "float32")
    expected = move_experts_to_host(family.experts(model), family.module_layout, form)
    _assert_same(loaded.host, expected)
    assert type(loaded.model) is type(model)
    rest, ours = model.state_dict(), loaded.model.state_dict()
    assert ours.keys() == rest.keys()
    assert all(torch.equal(ours[key], value) for key, value in rest.items())


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize(("stored", "asked"), [("bfloat16", "auto"), ("bfloat16", "float32"), ("float32", "bfloat16")])
def test_weights_are_converted_to_the_asked_type(name, stored, asked, tiny_checkpoint, tmp_path):
    model = save_tiny(name, tmp_path, tiny_checkpoint, dtype=getattr(torch, stored))
    checkpoint = Checkpoint.open(tmp_path, asked)
    dtype = stored if asked == "auto" else asked
    assert checkpoint.dtype == dtype
    loaded = load(checkpoint)
    family = checkpoint.family
    form = family.expert_format(model.config, dtype)
    _assert_same(loaded.host, move_experts_to_host(family.experts(model), family.module_layout, form))
    assert loaded.model.lm_head.weight.dtype == getattr(torch, dtype)


def test_packed_experts_of_gpt_oss_are_unpacked(tiny_checkpoint, tmp_path):
    model = save_tiny("gpt_oss", tmp_path, tiny_checkpoint, dtype=torch.bfloat16, changes={"intermediate_size": 64})
    experts, hidden, width = 12, 32, 64
    generator = torch.Generator().manual_seed(1)
    packed = {}
    for layer, module in enumerate(model.model.layers):
        for name, rows, columns in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
            blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
            scales = torch.randint(110, 140, (experts, rows, columns // 32), dtype=torch.uint8, generator=generator)
            setattr(module.mlp.experts, name, torch.nn.Parameter(convert_moe_packed_tensors(blocks, scales)))
            stem = f"model.layers.{layer}.mlp.experts.{name}"
            packed |= {f"{stem}_blocks": blocks, f"{stem}_scales": scales, stem: None}
    _edit(tmp_path, lambda tensors: [tensors.pop(name) for name in packed if name in tensors])
    _edit(tmp_path, lambda tensors: tensors.update({k: v for k, v in packed.items() if v is not None}))
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = Checkpoint.open(tmp_path, "auto")
    loaded = load(checkpoint)
    expected = move_experts_to_host(
        checkpoint.family.experts(model), checkpoint.family.module_layout, checkpoint.format
    )
    _assert_same(loaded.host, expected)
    assert loaded.model.lm_head.weight.dtype == torch.bfloat16


def _assert_same(pool: ExpertPool, expected: ExpertPool) -> None:
    assert pool.format == expected.format
    for part, tensor in expected.tensors.items():
        assert torch.equal(pool.tensors[part], tensor), part


def _tiny(folder: Path, tokenizer: Path, **how) -> Path:
    save_tiny("qwen3_moe", folder, tokenizer, **how)
    return folder


def _edit(folder: Path, change) -> None:
    """Apply a change to the dictionary of tensors of a checkpoint of one file."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


EXPERT = "model.layers.2.mlp.experts.7.up_proj.weight"
NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(EXPERT), f"{EXPERT}.*none of its files"),
        (lambda tensors: tensors.update({EXPERT: torch.zeros(15, 32)}), rf"{EXPERT}.*\(15, 32\).*\(16, 32\)"),
        (lambda tensors: tensors.update({EXPERT: tensors[EXPERT].bfloat16()}), f"{EXPERT}.*BF16.*F32"),
        (lambda tensors: tensors.update({EXPERT: tensors[EXPERT].to(torch.float8_e4m3fn)}), f"{EXPERT}.*F8_E4M3"),
        (lambda tensors: tensors.pop(NORM), f"{NORM}.*none of its files"),
        (lambda tensors: tensors.update({NORM: torch.zeros(31)}), rf"{NORM}.*\(31,\).*\(32,\)"),
    ],
)
def test_wrong_tensors_are_named(change, message, tiny_checkpoint, tmp_path):
    _edit(_tiny(tmp_path, tiny_checkpoint), change)
    with pytest.raises(InputError, match=message):
        load(Checkpoint.open(tmp_path))


def test_a_truncated_file_names_itself_and_its_tensor(tiny_checkpoint, tmp_path):
    file = _tiny(tmp_path, tiny_checkpoint) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"model\.safetensors: ends at byte .* inside tensor .*model\."):
        load(Checkpoint.open(tmp_path))
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(InputError, match=r"model\.safetensors: 50 bytes are too few for its header"):
        load(Checkpoint.open(tmp_path))
    file.write_bytes((8).to_bytes(8, "little") + b"no json!")
    with pytest.raises(InputError, match="no JSON"):
        load(Checkpoint.open(tmp_path))


def test_missing_shards_and_wrong_indices_are_named(tiny_checkpoint, tmp_path):
    index = _tiny(tmp_path, tiny_checkpoint, **SHARDS) / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    index.write_text(json.dumps(content | {"weight_map": content["weight_map"] | {"model.extra": "model-00001-of-"}}))
    with pytest.raises(InputError, match=r"model-00001-of-: is missing; .*'model\.extra'"):
        load(Checkpoint.open(tmp_path))
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1].name
    index.write_text(json.dumps(content | {"weight_map": content["weight_map"] | {"model.extra": shard}}))
    with pytest.raises(InputError, match=rf"{shard}: has no tensor 'model\.extra'"):
        load(Checkpoint.open(tmp_path))
    index.write_text(json.dumps(content))
    (tmp_path / shard).unlink()
    with pytest.raises(InputError, match=f"{shard}: is missing"):
        load(Checkpoint.open(tmp_path))
    index.unlink()
    with pytest.raises(InputError, match="neither"):
        load(Checkpoint.open(tmp_path))


def test_another_familys_tensors_are_refused(tiny_checkpoint, tmp_path):
    _tiny(tmp_path, tiny_checkpoint)
    _edit(tmp_path, lambda tensors: [tensors.pop(name) for name in list(tensors) if ".experts." in name])
    with pytest.raises(InputError, match=r"experts\.\{expert\}\.gate_proj.*'qwen3_moe'"):
        load(Checkpoint.open(tmp_path))


def test_quantised_and_unknown_models_are_refused_before_loading(tiny_checkpoint, tmp_path):
    config = _tiny(tmp_path, tiny_checkpoint) / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(InputError, match=r"quantised \(quant_method 'fp8'\).*float32, bfloat16"):
        Checkpoint.open(tmp_path)
    config.write_text(json.dumps(content | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(InputError, match="'llama' is not supported"):
        Checkpoint.open(tmp_path)
    config.write_text(json.dumps(content))
    with pytest.raises(InputError, match="'float64' is not computed; choose float32 or bfloat16"):
        Checkpoint.open(tmp_path, "float64")
    with pytest.raises(InputError, match="did you mean 'pageable'"):
        load(Checkpoint.open(tmp_path), "pageabel")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine can pin memory")
def test_pinned_memory_says_what_it_needs(tiny_checkpoint):
    with pytest.raises(InputError, match="needs an NVIDIA driver"):
        load(Checkpoint.open(tiny_checkpoint), "pinned")


_MEASURE = """
import sys
from pathlib import Path
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.loading import load

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

def measure(path):
    before = kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    loaded = load(Checkpoint.open(path, "bfloat16"))
    rest = sum(tensor.numel() * tensor.element_size() for tensor in loaded.model.state_dict().values())
    return (kib("VmHWM") - before) * 1024, loaded.host.entries * loaded.host.expert_bytes, rest

measure(sys.argv[1])  # what libraries import and allocate once is no part of a model
print(*measure(sys.argv[2]))
print(*measure(sys.argv[3]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_host_memory_peaks_below_pool_and_rest(tiny_checkpoint, tmp_path):
    folders = [tmp_path / name for name in ("small", "separate", "converted")]
    save_tiny("gpt_oss", folders[0], tiny_checkpoint, dtype=torch.bfloat16)
    for folder, name, width in zip(
        folders[1:], ("qwen3_moe", "gpt_oss"), ("moe_intermediate_size", "intermediate_size"), strict=True
    ):
        sizes = {"hidden_size": 256, width: 512}
        save_tiny(name, folder, tiny_checkpoint, dtype=torch.bfloat16, changes=sizes, max_shard_size="40MB")
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE, *folders], capture_output=True, text=True, timeout=120, check=True
    )
    for line in run.stdout.splitlines()[-2:]:
        peak, pool, rest = map(int, line.split())
        assert pool > 30e6
        assert pool < peak < 1.1 * (pool + rest)
