"""Protects what residency means for llama.cpp: whole layers, no more bytes than asked for, no silent fall-back."""

from __future__ import annotations

import re
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from baselines._shared.protocol import Refusal, Request
from baselines.llama_cpp import worker
from baselines.llama_cpp.gguf_header import Header, read_header
from baselines.llama_cpp.placement import place


def request(residency, device="cuda", **options):
    return Request(
        protocol=1, cell={"residency": residency}, model_path="m.gguf", prompts=[[1]], decode_tokens=1, device=device,
        threads=1, model_format="gguf", options=options,
    )  # fmt: skip


def header(*layer_bytes, experts=8):
    return Header("qwen3moe", len(layer_bytes), experts, 512, dict(enumerate(layer_bytes)))


@pytest.fixture
def model(tmp_path):
    """A GGUF whose layers have experts of different sizes, and one dense layer."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(3)
    writer.add_expert_count(4)
    writer.add_context_length(128)
    writer.add_token_list(["a", "b", "é"])
    writer.add_token_scores([0.5, 1.0, 2.0])
    writer.add_tensor("token_embd.weight", np.zeros((3, 7), np.float32))
    for layer, width in ((0, 5), (2, 9)):
        for part in ("gate", "up", "down"):
            writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", np.zeros((4, width, 8), np.float32))
    writer.add_tensor("blk.1.ffn_gate.weight", np.zeros((8, 8), np.float32))
    writer.add_tensor("blk.2.ffn_gate_inp.weight", np.zeros((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_header_agrees_with_the_gguf_package(model):
    found = read_header(model)
    assert (found.architecture, found.layers, found.experts, found.context) == ("qwen3moe", 3, 4, 128)
    wanted = {}
    for tensor in gguf.GGUFReader(model).tensors:
        if "_exps" in tensor.name:
            layer = int(tensor.name.split(".")[1])
            wanted[layer] = wanted.get(layer, 0) + int(tensor.n_bytes)
    assert found.expert_bytes == wanted


def test_what_is_no_gguf_is_refused(model, tmp_path):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "torn").write_bytes(model.read_bytes()[:100])
    for name, reason in (("text", "not a GGUF"), ("torn", "damaged"), ("absent", "no such file")):
        with pytest.raises(Refusal, match=reason):
            read_header(tmp_path / name)


@pytest.mark.parametrize("residency", [0.05, 0.15, 0.25, 0.35, 0.45, 0.5, 0.75, 0.99, 1.0])
@pytest.mark.parametrize("sizes", [(10,) * 12, (10, 20, 30, 40), (64, 1, 1, 1)])
def test_the_most_trailing_layers_that_fit_stay_on_the_device(residency, sizes):
    # Independent answer: try every number of leading layers on the CPU.
    on_cpu = next(n for n in range(len(sizes) + 1) if sum(sizes[n:]) <= residency * sum(sizes))
    placement = place(request(residency), header(*sizes))
    assert placement.resident_bytes == sum(sizes[on_cpu:]) <= residency * sum(sizes)
    assert placement.cache_bytes == 0
    pattern, _, buffer = placement.override.rpartition("=")
    assert buffer == ("CPU" if on_cpu else "")
    for layer in range(len(sizes)):
        kept = not (pattern and re.search(pattern, f"blk.{layer}.ffn_gate_exps.weight"))
        assert kept == (layer >= on_cpu)
        assert not (pattern and re.search(pattern, f"blk.{layer}.ffn_gate_inp.weight"))


def test_the_expert_cache_holds_the_residency_in_slots():
    one = 3 * 1024
    placement = place(request(0.45, expert_cache=True), header(*[8 * one] * 10))
    assert placement.resident_bytes == round(0.45 * 80) * one
    assert placement.resident_bytes + one <= placement.cache_bytes < placement.resident_bytes + 2 * one
    assert re.search(placement.override.removesuffix("=CPU"), "blk.7.ffn_down_exps.weight")


def test_without_a_gpu_only_full_load_means_anything():
    assert place(request(1.0, "cpu"), header(10, 10)).resident_bytes == 20
    with pytest.raises(Refusal, match="every expert is in host memory") as refused:
        place(request(0.45, "cpu"), header(10, 10))
    assert refused.value.kind == "unsupported"


def test_experts_that_fell_back_to_the_cpu_make_the_result_invalid():
    placement = SimpleNamespace(cache_bytes=0, resident_bytes=100 * 2**20)
    host, device = "load_tensors: CPU_Mapped model buffer size = 900.00 MiB\n", "CUDA0 model buffer size = %.2f MiB"
    worker._check_device(host + device % 120, placement)
    for log in (host, host + device % 60, host + "CUDA_Host model buffer size = 500.00 MiB", ""):
        with pytest.raises(Refusal, match="silent fall-back") as refused:
            worker._check_device(log, placement)
        assert refused.value.kind == "invalid"


def test_the_expert_caches_counters_are_read_from_the_log():
    log = (
        "llama_moe_cache: ubatch <= 8: hits = 300, misses = 100, hit rate = 75.00%, uploaded = 2.50 MiB\n"
        "llama_moe_cache: ubatch  > 8: hits = 1, misses = 9, hit rate = 10.00%, uploaded = 9.00 MiB\n"
    )
    seen = {}
    events = SimpleNamespace(stat=seen.__setitem__, missing=lambda name, reason: seen.update({name: reason}))
    placement = SimpleNamespace(resident_bytes=7)
    worker._report(events, request(0.45), placement, header(10), "xllamacpp", log)
    assert (seen["hit_rate"], seen["hits"], seen["misses"], seen["needed"]) == (0.75, 300, 100, 400)
    assert seen["bytes_on_demand"] == int(2.5 * 2**20)
    worker._report(events, request(0.45), placement, header(10), "xllamacpp", "")
    assert "no cache" in seen["hit_rate"]
