"""Protects `execution="graph"` on the CPU: the same tokens as interpreted, the same bits wherever the experts are."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from family_models import CONFIGS, save_tiny
from torch._inductor import config as inductor_config

from seqmoe.predictor.first_order import FirstOrder
from seqmoe.runtime.batching import BatchSession
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.graph.caches import state_of, static_cache
from seqmoe.runtime.graph.decoder import GraphDecoder
from seqmoe.runtime.graph.experts_op import compiler, load_operator
from seqmoe.runtime.graph.store import Store
from seqmoe.runtime.graph.trace import export_step
from seqmoe.runtime.sampling import Sampling
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import SystemSpec, system

PROMPTS = [list(range(1, 20)), list(range(40, 52))]
TOKENS = 16
# Fused float32 arithmetic differs from the interpreted in its last bits.
TOLERANCE = 2e-4


@pytest.fixture(scope="module", autouse=True)
def _a_compiler():
    torch.set_num_threads(1)
    try:
        compiler()
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def engine(tiny_checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two_layers")
    save_tiny("qwen3_moe", folder, tiny_checkpoint, changes={"num_hidden_layers": 2, "mlp_only_layers": []})
    engine = Engine.load(folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def compiled(engine, store):
    lines = []
    loaded = engine._loaded
    decoder = GraphDecoder(loaded.model, loaded.experts, engine.geometry, engine.router, store, lines.append)
    decoder.prepare(2)
    assert "compiled in" in lines[-1]
    return decoder


@pytest.fixture
def graph(engine, compiled, monkeypatch):
    monkeypatch.setattr(engine, "_compiled", compiled)
    return lambda spec, *rest: engine.place(dataclasses.replace(spec, execution="graph"), *rest)


def first_order():
    chance = np.random.default_rng(0).random((2, 60, 60), dtype=np.float32)
    return FirstOrder(chance / chance.sum(-1, keepdims=True) * 3, top_k=3, recent=0.5)


def decode(engine, prompts=PROMPTS):
    results = engine.generate_batch(prompts, TOKENS, keep_logits=True)
    return [r.tokens for r in results], torch.stack([torch.stack(r.logits) for r in results])


def test_tokens_are_the_interpreted_ones_and_bits_those_of_full_load(engine, graph):
    engine.place_full()
    tokens, logits = decode(engine)
    graph(system("full"), 1.0, None, None)
    full_tokens, full = decode(engine)
    assert full_tokens == tokens
    assert torch.allclose(full, logits, atol=TOLERANCE)
    specs = [system(name) for name in ("naive", "lru", "lfu", "seqmoe_cache_only")]
    specs.append(SystemSpec("prefetching", "", "cache_score", prefetch="matroid", predictor="any"))
    for spec in specs:
        for residency in (0.1, 0.45):
            graph(spec, residency, first_order() if spec.predictor == "any" else None, None)
            found_tokens, found = decode(engine)
            assert found_tokens == tokens, spec.name
            assert torch.equal(found, full), spec.name


@pytest.mark.parametrize("name", ["lru", "lfu", "seqmoe_cache_only"])
def test_systems_decide_as_when_interpreted(engine, graph, name):
    predictor = first_order() if system(name).predictor == "any" else None
    place = {"sync": engine.place, "graph": graph}
    counts, routing = {}, {}
    for execution in place:
        place[execution](dataclasses.replace(system(name), prefill="on_demand"), 0.3, predictor, None)
        engine.router.recorded = []
        decode(engine)
        counts[execution] = engine.offloaded.pipeline.statistics()
        routing[execution], engine.router.recorded = engine.router.recorded, None
    for count in ("events", "needed", "hits", "misses"):
        assert counts["graph"][count] == counts["sync"][count]
    assert len(routing["graph"]) == len(routing["sync"])
    assert all(map(np.array_equal, routing["graph"], routing["sync"]))


def test_what_fails_in_a_step_is_raised(engine, graph):
    graph(system("seqmoe_cache_only"), 0.3, first_order(), None)

    def forecast(*_):
        raise ZeroDivisionError("in the predictor")

    engine.router.placement.routed = forecast
    with pytest.raises(ZeroDivisionError, match="in the predictor"):
        decode(engine)


def test_a_compiled_step_is_compiled_once(engine, compiled, store):
    lines = []
    loaded = engine._loaded
    again = GraphDecoder(loaded.model, loaded.experts, engine.geometry, engine.router, store, lines.append)
    again.prepare(2)
    assert not lines


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("qwen3_moe", "deepseek_v4")])
def test_every_familys_traced_step_is_its_models(name, tiny_checkpoint, tmp_path, store):
    """The graph before it is compiled, past the sliding window where there is one."""
    load_operator(store)
    save_tiny(name, tmp_path, tiny_checkpoint, changes={"max_position_embeddings": 64})
    engine = Engine.load(tmp_path)
    engine.place_full()
    expected = engine.generate(PROMPTS[0], 4, keep_logits=True)
    model, experts = engine._loaded.model, engine._loaded.experts
    traced = export_step(model, experts, batch=1).module()
    engine.router.begin_prompt(np.ones((1, len(PROMPTS[0])), dtype=bool))
    cache = static_cache(model.config, 30)
    with torch.no_grad():
        model(input_ids=torch.tensor(PROMPTS[:1]), cache=cache, use_cache=True)
        engine.place(dataclasses.replace(system("full")), 1.0, None, None)
        target, step = target_of(engine)
        for index in range(3):
            step.begin(0)
            ids, position = torch.tensor([[expected.tokens[index]]]), torch.tensor([[len(PROMPTS[0]) + index]])
            logits = traced(ids, position, target, [owner[key] for owner, key in state_of(cache)], None)
            step.finish()
            assert torch.allclose(logits[0], expected.logits[index + 1], atol=TOLERANCE)
    engine.close()


def target_of(engine):
    """The tensor that leads a traced step to the experts of a full load, and the step."""
    from seqmoe.core.step import DecodeStep

    geometry, pool = engine.geometry, engine.router.placement.pool
    sizes = geometry.layers, geometry.experts, 1, geometry.top_k
    step = DecodeStep(*sizes, *pool.arrays, None, **pool.options)
    return torch.tensor(step.address), step


def test_a_family_that_cannot_be_compiled_is_refused_by_name(tiny_checkpoint, tmp_path):
    save_tiny("deepseek_v4", tmp_path, tiny_checkpoint)
    engine = Engine.load(tmp_path)
    with pytest.raises(InputError, match=r"cannot compile model_type 'deepseek_v4'.*use execution 'sync'"):
        engine.place(dataclasses.replace(system("full"), execution="graph"), 1.0, None, None)
    engine.close()


def test_a_missing_compiler_is_named(engine, monkeypatch):
    monkeypatch.setattr(engine, "_compiled", None)
    monkeypatch.setenv("PATH", "/nowhere")
    # Undone by PyTorch itself: monkeypatch leaves this setting hidden from the tests that follow.
    nowhere = inductor_config.patch({"cpp.cxx": ("no-such-compiler",)})
    with nowhere, pytest.raises(InputError, match=r"none was found: install g\+\+"):
        engine.place(dataclasses.replace(system("full"), execution="graph"), 1.0, None, None)


def test_other_threads_run_while_a_layer_waits_for_experts(engine, graph):
    graph(system("naive"), 0.3, None, None)
    decode(engine)
    passed, done = [], threading.Event()

    def count():
        while not done.wait(0.001):
            passed.append(True)

    marks = []
    engine.offloaded.link.seconds_per_expert = 0.03
    thread = threading.Thread(target=count)
    thread.start()
    engine.generate_batch([[1], [2]], 2, on_token=lambda index, token: marks.append(len(passed)))
    done.set()
    thread.join()
    # At least three experts in each of two layers; a thread that is locked out passes once at most.
    assert marks[1] - marks[0] > 3


def test_requests_of_a_changing_batch_take_turns(engine, graph):
    graph(system("lru"), 0.5, None, None)
    alone = [engine.generate(prompt, TOKENS).tokens for prompt in PROMPTS]
    *_, sampled = engine.stream(PROMPTS[0], TOKENS, Sampling(1.0, top_p=1e-6, seed=1, ignore_end=True))
    assert sampled.tokens == alone[0]
    graph(system("lru"), 0.5, None, None)
    batch = BatchSession(SimpleNamespace(engine=engine))
    members = [batch.admit(PROMPTS[0], TOKENS, Sampling(ignore_end=True))]
    batch.step()
    members.append(batch.admit(PROMPTS[1], TOKENS, Sampling(ignore_end=True)))
    while batch.members:
        batch.step()
    assert [member.tokens for member in members] == alone
