"""Protects the other workers' honesty: each says what is missing and how to get it, and maps residency to flags."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from baselines._shared import checks
from baselines._shared.protocol import Refusal, parse_request
from baselines.freetoken import worker as freetoken
from baselines.ktransformers import worker as ktransformers
from baselines.moe_infinity import worker as moe_infinity
from baselines.vllm import worker as vllm
from seqmoe.spec.baseline import load_baselines

GPU_ONLY = ("ktransformers", "moe_infinity", "freetoken")
ROOT = Path(__file__).parents[2]
EXPERT_BYTES = 2 * 4 * 3 * 50 * 4


@pytest.fixture
def model(tmp_path):
    """A checkpoint folder with 2 layers of 4 experts in float32, and other tensors that do not count."""
    tensors = {"model.embed_tokens.weight": np.zeros((9, 9), np.float32)}
    for layer in range(2):
        tensors[f"model.layers.{layer}.mlp.shared_expert.up_proj.weight"] = np.zeros((9, 9), np.float32)
        for expert in range(4):
            for part in ("gate", "up", "down"):
                name = f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"
                tensors[name] = np.zeros((5, 10), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", "eos_token_id": [7, 8]}))
    return tmp_path


@pytest.fixture
def request_for(request_table, model):
    def build(residency, **changes):
        table = request_table | {"cell": {"residency": residency, "batch": 2}, "model_path": str(model)}
        return dataclasses.replace(parse_request(json.dumps(table)), **changes)

    return build


@pytest.mark.parametrize("key", GPU_ONLY)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_a_gpu_the_answer_is_unsupported(run_worker, request_table, model, key, device):
    if checks.cuda_devices():
        pytest.skip("this host has a GPU")
    worker = importlib.import_module(f"baselines.{key}.worker").__file__
    events, _ = run_worker(worker, request_table | {"device": device, "model_path": str(model)})
    assert [event["kind"] for event in events] == ["unsupported"]
    assert "GPU" in events[0]["reason"]


def test_an_absent_package_comes_with_the_command_that_installs_it(run_worker, request_table, model):
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vllm is installed beside the tests")
    events, _ = run_worker(vllm.__file__, request_table | {"model_path": str(model)})
    assert [(event["kind"], event["hint"]) for event in events] == [("not_installed", "nox -s baseline-vllm")]
    partly = request_table | {"cell": {"residency": 0.45}, "model_path": str(model)}
    assert run_worker(vllm.__file__, partly)[0][0]["kind"] == "unsupported"


def test_expert_bytes_are_those_of_the_routed_experts(model):
    assert checks.expert_bytes(model) == EXPERT_BYTES
    assert checks.expert_dtype(model) == "F32"
    assert checks.end_of_text(model) == [7, 8]


def test_another_family_or_form_is_refused(request_for, model):
    with pytest.raises(Refusal, match="does not serve 'qwen3_moe' models"):
        checks.require_family(request_for(1.0), ("mixtral",), "Some system")
    with pytest.raises(Refusal, match="loads a Hugging Face checkpoint folder"):
        checks.require_family(request_for(1.0, model_format="gguf"), ("qwen3_moe",), "Some system")


def after(command, flag):
    return command[command.index(flag) + 1]


def test_ktransformers_is_asked_for_the_share_of_experts(request_for, model):
    command = ktransformers.command(request_for(0.45), 5000)
    assert command[:3] == [sys.executable, "-m", "sglang.launch_server"]
    assert (after(command, "--kt-gpu-experts-ratio"), after(command, "--kt-method")) == ("0.45", "BF16")
    assert after(command, "--max-running-requests") == "2"
    assert not [part for part in ktransformers.command(request_for(1.0), 5000) if part.startswith("--kt")]
    config = json.loads((model / "config.json").read_text())
    for method, named in (("fp8", "FP8"), ("awq", None)):
        (model / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
        if named:
            assert after(ktransformers.command(request_for(0.45), 5000), "--kt-method") == named
        else:
            with pytest.raises(Refusal, match="no native method for awq"):
                ktransformers.command(request_for(0.45), 5000)


def test_freetoken_is_asked_for_the_cache_rate(request_for):
    command = freetoken.command(request_for(0.25), 5000)
    assert (after(command, "--moe-cache-rate"), after(command, "--moe-strategy")) == ("0.25", "offload")
    full = freetoken.command(request_for(1.0), 5000)
    assert after(full, "--moe-strategy") == "fused"
    assert "--moe-cache-rate" not in full
    assert after(freetoken.command(request_for(0.25, options={"strategy": "hybrid"}), 1), "--moe-strategy") == "hybrid"
    with pytest.raises(Refusal, match="option strategy"):
        freetoken.command(request_for(0.25, options={"strategy": "auto"}), 1)


def test_moe_infinity_is_asked_for_a_share_of_the_devices_memory(request_for, monkeypatch):
    monkeypatch.setattr(checks, "device_memory", lambda: 2 * EXPERT_BYTES)
    command = moe_infinity.command(request_for(0.5), "server_v2", 5000, "/offload")
    assert (after(command, "--device-memory-ratio"), after(command, "--max-batch-size")) == ("0.2500", "2")
    monkeypatch.setattr(checks, "device_memory", lambda: EXPERT_BYTES // 2)
    with pytest.raises(Refusal, match="do not fit") as refused:
        moe_infinity.command(request_for(0.5), "server", 5000, "/offload")
    assert refused.value.kind == "oom"


def test_moe_infinitys_placeholder_and_old_versions_are_told_apart(tmp_path, monkeypatch):
    package = tmp_path / "moe_infinity"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Refusal, match="empty placeholder") as refused:
        moe_infinity.server_module("qwen3")
    assert refused.value.kind == "not_installed"
    (package / "entrypoints" / "openai").mkdir(parents=True)
    (package / "entrypoints" / "openai" / "api_server.py").touch()
    (package / "common").mkdir()
    (package / "common" / "constants.py").write_text('NAMES = {"mixtral": 4}')
    assert moe_infinity.server_module("mixtral") == "moe_infinity.entrypoints.openai.api_server"
    with pytest.raises(Refusal, match="does not register 'qwen3'") as refused:
        moe_infinity.server_module("qwen3")
    assert refused.value.kind == "unsupported"


def test_vllm_offloads_experts_beyond_the_residency(request_for):
    cpu = vllm.arguments(request_for(1.0))
    assert (cpu["dtype"], cpu["enforce_eager"], "cpu_offload_gb" in cpu) == ("float32", True, False)
    assert cpu["max_model_len"] % 256 == 0
    gpu = vllm.arguments(request_for(0.25, device="cuda"))
    assert gpu["cpu_offload_gb"] * 2**30 == pytest.approx(0.75 * EXPERT_BYTES)
    assert gpu["dtype"] == "auto"


def test_freetoken_refuses_prompts_that_text_cannot_carry(request_for, model):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary | {"ab": 256}, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(model / "tokenizer.json"))
    texts = freetoken.Texts(request_for(0.45))
    assert texts.of([256, vocabulary["c"]]) == "abc"
    with pytest.raises(Refusal, match="takes text only"):
        texts.of([vocabulary["a"], vocabulary["b"]])


def test_every_declared_baseline_has_a_worker_that_starts(run_worker, request_table):
    for baseline in load_baselines(ROOT / "baselines").values():
        events, _ = run_worker(baseline.worker, request_table | {"protocol": 99})
        assert [event["kind"] for event in events] == ["invalid"]
