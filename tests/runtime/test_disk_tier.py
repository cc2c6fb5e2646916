"""Protects the disk tier: files and offsets lead to each expert's bytes, and layouts that slots cannot hold say why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_models import CONFIGS, save_tiny

from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.host_pool import DiskPool
from seqmoe.runtime.loading import load
from seqmoe.runtime.placement import ExpertPool
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import system


@pytest.mark.parametrize("how", [{"max_shard_size": "60KB"}, {"save_original_format": False}], ids=["shards", "fused"])
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "gpt_oss"])
def test_a_disk_link_fills_slots_as_the_pool_in_memory_has_them(name, how, tiny_checkpoint, tmp_path):
    save_tiny(name, tmp_path, tiny_checkpoint, dtype=torch.bfloat16, **how)
    checkpoint = Checkpoint.open(tmp_path, "auto")
    disk, memory = load(checkpoint, "disk").host, load(checkpoint).host
    assert isinstance(disk, DiskPool)
    assert (disk.entries, disk.expert_bytes) == (memory.entries, memory.expert_bytes)
    slots = ExpertPool.empty(3, disk.format)
    link = disk.link_to(slots, 0.0)
    for key in np.random.default_rng(0).choice(disk.entries, 12, replace=False).tolist():
        link.transfer(key, key % 3)
        for part, tensor in slots.tensors.items():
            assert torch.equal(tensor[key % 3], memory.tensors[part][key]), (key, part)
    for part, tensor in disk.resident().tensors.items():
        assert torch.equal(tensor, memory.tensors[part])


@pytest.mark.parametrize("name", ["lru", "naive"])
def test_a_model_on_disk_answers_as_from_memory(name, tiny_checkpoint, tmp_path):
    save_tiny("qwen3_moe", tmp_path, tiny_checkpoint)
    prompt = list(range(1, 20))
    answers = []
    for tier in ("pageable", "disk"):
        engine = Engine.load(tmp_path, tier=tier)
        engine.place(system(name), 0.15, None, None)
        answers.append(torch.stack(engine.generate(prompt, 12, keep_logits=True).logits))
        assert engine.offloaded.link.transfers > 0
        engine.close()
    assert torch.equal(*answers)


def test_other_layouts_and_types_are_refused_with_the_reason(tiny_checkpoint, tmp_path):
    save_tiny("gpt_oss", tmp_path, tiny_checkpoint)
    with pytest.raises(InputError, match="stored as one tensor per layer and matrix, transposed, gate and up interl"):
        load(Checkpoint.open(tmp_path), "disk")
    with pytest.raises(InputError, match=r"stored as F32, but dtype 'bfloat16' is asked for.*pageable"):
        load(Checkpoint.open(tiny_checkpoint, "bfloat16"), "disk")


def test_a_file_that_shrank_since_loading_is_named(tiny_checkpoint, tmp_path):
    save_tiny("olmoe", tmp_path, tiny_checkpoint)
    disk = load(Checkpoint.open(tmp_path), "disk").host
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"model\.safetensors: ends at byte \d+, inside an expert's weights"):
        disk.resident()
