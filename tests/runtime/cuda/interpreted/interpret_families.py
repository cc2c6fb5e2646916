"""Protects every family with a cache of fixed size, batches, and packed weights through the whole decode step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from device_models import LENGTH, PROMPT, TOKENS, tiny_checkpoint
from random_models import tiny_model, tiny_traces

from seqmoe.runtime.cuda.device import HostDevice
from seqmoe.runtime.cuda.engine import CudaEngine
from seqmoe.runtime.cuda.loading import load_on, random_on
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.random_model.opened import Opened, RandomModel
from seqmoe.runtime.random_model.routing import Replay
from seqmoe.runtime.random_model.shape import stored_bytes
from seqmoe.runtime.replayed import trace_weights
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import system

HOST = HostDevice()
# Two blocks of FP8's scales, whose bytes are whole accesses.
SIDE = 256


@pytest.mark.parametrize("name", ["olmoe", "mixtral", "qwen3_5_moe"])
def test_a_batch_of_every_family_says_what_the_cpu_runtime_says(name, tmp_path) -> None:
    checkpoint = tiny_checkpoint(name, tmp_path)
    prompts = [PROMPT[:3], [11, 4, 8]]
    answers = Engine(checkpoint).generate_batch(prompts, 4)
    engine = CudaEngine(load_on(checkpoint, HOST), HOST)
    engine.place(replace(system("lru"), execution="graph"), 0.5, batch=2, length=7)
    results = engine.generate(prompts, 4)
    engine.close()
    assert [result.tokens for result in results] == [answer.tokens for answer in answers]


def test_a_family_whose_cache_grows_is_refused_by_name(tmp_path) -> None:
    from family_models import save_tiny

    from seqmoe.runtime.checkpoint import Checkpoint

    save_tiny("deepseek_v4", tmp_path, "seqmoe/reference/checkpoint")
    engine = CudaEngine(load_on(Checkpoint.open(tmp_path), HOST), HOST)
    with pytest.raises(InputError, match="model_type 'deepseek_v4'"):
        engine.place(system("lru"), 0.5)


def _packed(tmp_path, stored):
    """A random model whose experts are stored as ``stored``, sizes of whole blocks; its traces."""
    model = tiny_model("olmoe", tmp_path / "model")
    config = model.path
    from transformers import OlmoeConfig

    OlmoeConfig(
        vocab_size=60, hidden_size=SIDE, intermediate_size=SIDE, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, num_experts=8, num_experts_per_tok=3, max_position_embeddings=64,
        initializer_range=0.05, eos_token_id=50, pad_token_id=0,
    ).save_pretrained(config)  # fmt: skip
    weights = 3 * SIDE * SIDE
    size = {"bf16": 2 * weights, "fp8": weights, "mxfp4": weights * 17 // 32}[stored]
    model = replace(model, layers=2, experts=8, format=stored, expert_bytes=size)
    traces = tiny_traces(model, requests=1)
    checkpoint = Opened(
        RandomModel(model, "traces", (0,)), traces, _checkpoint(model),
    )  # fmt: skip
    return checkpoint, traces


def _checkpoint(model):
    from seqmoe.runtime.random_model.shape import random_checkpoint

    return random_checkpoint(model, 3, dtype="bfloat16")


@pytest.mark.parametrize("stored", ["bf16", "fp8", "mxfp4"])
def test_packed_experts_with_replayed_routing_say_full_loads_words(stored, tmp_path) -> None:
    """At their real bytes; one expert after another, from unpacked matrices, says the same up to rounding."""
    opened, traces = _packed(tmp_path, stored)
    loaded = random_on(opened.checkpoint, stored, HOST)
    engine = CudaEngine(loaded, HOST, replays=True)
    request = traces.requests[0]
    replay = Replay(request.experts, trace_weights(request, traces.experts, traces.router), len(PROMPT))
    logits = {}
    for name, residency, mode in (("full", 1.0, "graph"), ("lru", 0.4, "graph"), ("full", 1.0, "eager")):
        engine.place(replace(system(name), execution=mode), residency, length=LENGTH)
        (result,) = engine.generate([PROMPT], 2, replays=[replay], keep_logits=True)
        logits[name, mode] = torch.stack(result.logits)
    counts = engine.placement.statistics()
    assert counts == {}
    assert torch.equal(logits["full", "graph"], logits["lru", "graph"])
    assert torch.allclose(logits["full", "graph"], logits["full", "eager"], atol=0.15)
    # FP8's scales of blocks are not part of the declared bytes.
    scales = 4 * (4 * 2 + 2 * 2) if stored == "fp8" else 0
    assert loaded.host.format.expert_bytes == stored_bytes(opened.checkpoint.format, stored) + scales
    with pytest.raises(ValueError, match="given to an engine that was made for them"):
        engine.generate([PROMPT], 1)
    engine.close()


def test_the_device_meets_the_events_of_the_trace(tmp_path) -> None:
    """Hits of LRU by the device's counters are those of a plain simulation of the same routing."""
    opened, traces = _packed(tmp_path, "bf16")
    engine = CudaEngine(random_on(opened.checkpoint, "bf16", HOST), HOST, replays=True)
    request = traces.requests[0]
    experts = np.where(request.experts < 0, 0, request.experts)  # a row that the routers chose could be any
    replay = Replay(experts, np.full(experts.shape, 1 / 3, dtype=np.float32), len(PROMPT))
    engine.place(replace(system("lru"), execution="graph"), 0.5, length=LENGTH)
    assert len(replay.experts) > LENGTH
    before = engine._routing.addresses
    engine.generate([PROMPT], TOKENS, replays=[replay])
    assert engine._routing.addresses == before, "a captured step reads the routing where it was"
    counts = engine.placement.statistics()
    held: dict[tuple[int, int], int] = {}
    hits = misses = 0
    for event, (step, layer) in enumerate((s, y) for s in range(LENGTH - 1) for y in range(2)):
        needed = {(layer, int(expert)) for expert in experts[step, layer]}
        hits += len(needed & held.keys())
        misses += len(needed - held.keys())
        for key in needed - held.keys():
            if len(held) == 8:
                del held[min((k for k in held if k not in needed), key=lambda k: (held[k], k))]
            held[key] = event
        held |= dict.fromkeys(needed, event)
    engine.close()
    assert (counts["hits"], counts["misses"]) == (hits, misses) and hits > 0
