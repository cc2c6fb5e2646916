"""Protects the memory plan: its parts are what a model really takes, limits are found, and a misfit is said early."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from family_models import CONFIGS, save_tiny
from transformers import DynamicCache, StaticCache

from seqmoe.runtime import memory_plan
from seqmoe.runtime.available_memory import Available, available_memory
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.generate import generate
from seqmoe.runtime.loading import load
from seqmoe.runtime.memory_plan import cache_bytes, non_expert_bytes, plan_memory
from seqmoe.runtime.setup import Setup
from seqmoe.runtime.worker import Worker
from seqmoe.spec.errors import OutOfMemoryError
from seqmoe.spec.system import system

GIB = 2**30


def _tensors_of(cache) -> list[torch.Tensor]:
    """Every tensor that the layers of a cache hold, each once."""
    found: dict[int, torch.Tensor] = {}

    def collect(value) -> None:
        if isinstance(value, torch.Tensor):
            found[value.data_ptr()] = value
        elif isinstance(value, dict):
            for item in value.values():
                collect(item)

    for layer in cache.layers:
        for value in vars(layer).values():
            collect(value)
    return [tensor for tensor in found.values() if tensor.numel() > 1]


@pytest.mark.parametrize("name", CONFIGS)
def test_parts_are_what_a_loaded_model_takes(name, tiny_checkpoint, tmp_path):
    model = save_tiny(name, tmp_path, tiny_checkpoint)
    checkpoint = Checkpoint.open(tmp_path)
    loaded = load(checkpoint)
    rest = [*loaded.model.parameters(), *loaded.model.buffers()]
    assert non_expert_bytes(checkpoint) == sum(tensor.numel() * tensor.element_size() for tensor in rest)
    tokens, batch = 40, 2
    config = checkpoint.config
    static = checkpoint.family.static_cache
    cache = StaticCache(config=config, max_cache_len=tokens) if static else DynamicCache(config=config)
    with torch.no_grad():
        model(torch.ones(batch, tokens, dtype=torch.long), cache=cache, use_cache=True)
    taken = sum(tensor.numel() * tensor.element_size() for tensor in _tensors_of(cache))
    planned = cache_bytes(config, batch, tokens, 4)
    assert taken <= planned if name == "deepseek_v4" else taken == planned
    assert taken > 0
    plan = dict(plan_memory(checkpoint, "pageable", slots=7, batch=batch, tokens=tokens).parts)
    assert plan["host pool"] == sum(tensor.numel() * 4 for tensor in loaded.host.tensors.values())
    assert plan["slot pool"] == 7 * loaded.host.expert_bytes


def test_a_model_that_does_not_fit_is_refused_with_the_sum_before_its_weights_are_read(
    tiny_checkpoint, tmp_path, monkeypatch
):
    save_tiny("olmoe", tmp_path, tiny_checkpoint)
    (tmp_path / "model.safetensors").write_bytes(b"")
    monkeypatch.setattr(memory_plan, "available_memory", lambda: Available(300_000, "a test"))
    with pytest.raises(OutOfMemoryError, match=r"non-experts .* MiB \+ host pool .* MiB = .*0\.3 MiB are available"):
        load(Checkpoint.open(tmp_path))


def test_the_disk_tier_needs_no_host_pool_unless_every_expert_is_resident(tiny_checkpoint):
    checkpoint = Checkpoint.open(tiny_checkpoint)
    size, total = checkpoint.geometry.expert_bytes, checkpoint.geometry.total_experts
    disk = dict(plan_memory(checkpoint, "disk", slots=8, prompt_tokens=10, predictor_bytes=5).parts)
    assert (disk["host pool"], disk["slot pool"], disk["predictor"]) == (0, 8 * size, 5)
    assert disk["activations"] > 10 * 3 * 32 * 4
    assert dict(plan_memory(checkpoint, "disk").parts)["host pool"] == total * size
    plan_memory(checkpoint, "pageable", slots=8).check()


def _proc(folder: Path, groups: str, mounts: str, available_kib: int = 8 * 2**20) -> Path:
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available_kib} kB\nHugePages_Total: 0\n")
    (folder / "self/cgroup").write_text(groups)
    (folder / "self/mountinfo").write_text(mounts)
    return folder


def _group(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")
    return folder


def test_without_control_groups_the_machine_decides(tmp_path):
    proc = _proc(tmp_path / "proc", "0::/\n", "")
    assert available_memory(proc) == Available(8 * GIB, f"{proc}/meminfo")
    assert available_memory(tmp_path / "absent").bytes > 2**60


def test_a_limit_of_a_parent_group_counts_in_version_2(tmp_path):
    mount = _group(tmp_path / "cgroup")
    _group(mount / "a", memory__max=3 * GIB, memory__current=2 * GIB, memory__stat=f"inactive_file {GIB}\nanon 7")
    _group(mount / "a/b", memory__max="max", memory__current=GIB, memory__stat="")
    proc = _proc(tmp_path / "proc", "0::/a/b\n", f"30 1 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    assert available_memory(proc) == Available(2 * GIB, f"{mount}/a/memory.max")


def test_version_1_beside_an_empty_version_2_and_a_mount_of_a_subtree(tmp_path):
    one, two = tmp_path / "memory", _group(tmp_path / "unified")
    files = {"memory__usage_in_bytes": GIB, "memory__stat": f"total_inactive_file {GIB // 4}\ntotal_active_file 0"}
    _group(one, memory__limit_in_bytes=9223372036854771712, **files)
    _group(one / "job", memory__limit_in_bytes=GIB * 2, **files)
    mounts = f"30 1 0:26 / {two} rw - cgroup2 none rw\n31 1 0:27 /box {one} rw - cgroup cgroup rw,memory\n"
    mounts += "32 1 0:28 /box /elsewhere rw - cgroup cgroup rw,cpu\n"
    proc = _proc(tmp_path / "proc", "4:memory:/box/job\n3:cpu:/\n0::/\n", mounts)
    assert available_memory(proc) == Available(GIB + GIB // 4, f"{one}/job/memory.limit_in_bytes")


def test_a_limit_that_is_exceeded_leaves_nothing(tmp_path):
    mount = _group(tmp_path / "cgroup", memory__max=GIB, memory__current=2 * GIB, memory__stat="anon 1")
    proc = _proc(tmp_path / "proc", "0::/\n", f"30 1 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    assert available_memory(proc).bytes == 0


def test_generate_and_the_worker_say_out_of_memory(tiny_checkpoint, monkeypatch):
    checkpoint = Checkpoint.open(tiny_checkpoint)
    enough = plan_memory(checkpoint, "pageable", slots=0).total
    monkeypatch.setattr(memory_plan, "available_memory", lambda: Available(enough, "a test"))
    load(checkpoint)
    with pytest.raises(OutOfMemoryError, match=r"slot pool .* \+ caches .* \+ activations"):
        generate(tiny_checkpoint, "prompt", Setup(system("lru"), 0.45), 5)
    monkeypatch.setattr(memory_plan, "available_memory", lambda: Available(0, "a test"))
    out = io.StringIO()
    cell = {
        "suite": "test", "panel": "p", "system": "lru", "model": "tiny", "lane": "measured", "residency": 0.45,
        "batch": 1, "dataset": "d", "prompts": 1, "decode_tokens": 2,
    }  # fmt: skip
    request = {
        "protocol": 1, "cell": cell, "model_path": str(tiny_checkpoint), "model_format": "hf", "prompts": [[5, 6]],
        "decode_tokens": 2, "device": "cpu", "threads": 1,
    }  # fmt: skip
    Worker(out).serve(io.StringIO(json.dumps(request) + "\n"))
    error = json.loads(out.getvalue().splitlines()[-1])
    assert (error["event"], error["kind"]) == ("error", "oom")
    assert "host pool" in error["reason"]
