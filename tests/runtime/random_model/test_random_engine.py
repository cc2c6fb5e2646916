"""Protects the replay of routing through a whole model: routers say what traces say, answers stay full load's."""

from __future__ import annotations

import io
import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from random_models import PROMPT, opened

from seqmoe.runtime.random_model.engine import RandomEngine
from seqmoe.runtime.random_model.generate import random_generate
from seqmoe.runtime.replay_runner import predictor_of
from seqmoe.runtime.worker import Worker
from seqmoe.spec.errors import InputError
from seqmoe.spec.suite import Cell
from seqmoe.spec.system import system
from seqmoe.spec.trace import MISSING

TOKENS = 10


@pytest.fixture(scope="module", params=["qwen3_moe", "gpt_oss", "deepseek_v4"])
def engine(request, tmp_path_factory):
    torch.set_num_threads(1)
    found = RandomEngine(opened(request.param, tmp_path_factory.mktemp(request.param), dtype="float32"))
    yield found
    found.close()


def _events(engine, prompts):
    """What every layer was given in each forward, [tokens, k] each."""
    engine.router.recorded = []
    results = engine.generate_batch([list(prompt) for prompt in prompts], TOKENS, keep_logits=True)
    recorded, engine.router.recorded = engine.router.recorded, None
    return recorded, results


def test_routers_choose_what_the_trace_says_and_themselves_where_it_says_nothing(engine) -> None:
    engine.place_full()
    recorded, _ = _events(engine, engine.prompts((1,), TOKENS))
    layers, experts = engine.geometry.layers, engine.traces.requests[1].experts
    assert len(recorded) == layers * TOKENS
    for layer in range(layers):
        prompt, given = recorded[layer], experts[:PROMPT, layer]
        lacking = (given == MISSING).all(-1)
        assert (prompt[~lacking] == given[~lacking]).all()
        assert lacking.any() == (layer + 1 == layers) and (prompt >= 0).all()
        for step in range(1, TOKENS):
            assert (recorded[step * layers + layer] == experts[PROMPT + step - 1, layer]).all()


@pytest.mark.parametrize(("name", "residency"), [("naive", 0.2), ("lru", 0.45), ("seqmoe", 0.2)])
def test_every_system_gives_full_loads_logits(engine, name, residency) -> None:
    prompts = engine.prompts((0, 2), TOKENS)
    engine.place_full()
    _, answers = _events(engine, prompts)
    spec = system(name)
    engine.place(spec, residency, predictor_of(spec, "online_first_order", engine), None)
    recorded, results = _events(engine, prompts)
    for one, answer in zip(results, answers, strict=True):
        assert one.tokens == answer.tokens
        assert torch.equal(torch.stack(one.logits), torch.stack(answer.logits))
    both = [engine.traces.requests[index].experts[PROMPT, 0] for index in (0, 2)]
    assert (recorded[engine.geometry.layers] == np.stack(both)).all()


def test_weights_of_the_trace_are_what_experts_are_mixed_by(engine) -> None:
    """Another weight in one row of the routing changes the answer."""
    (prompt,) = engine.prompts((0,), TOKENS)
    engine.place_full()
    _, (before,) = _events(engine, [prompt])
    engine._replays[prompt].weights[PROMPT + 2, 0] = [0.9, 0.05, 0.05]
    _, (after,) = _events(engine, [prompt])
    same = [torch.equal(a, b) for a, b in zip(before.logits, after.logits, strict=True)]
    assert same[:3] == [True] * 3 and not same[3]
    engine.prompts((0,), TOKENS)


def test_requests_that_are_short_or_absent_are_refused(engine) -> None:
    with pytest.raises(ValueError, match="request 'r0' of the traces gives at most 15"):
        engine.prompts((0,), 16)
    with pytest.raises(InputError, match="request 3: the traces have 3"):
        engine.prompts((3,), TOKENS)
    with pytest.raises(InputError, match="execution 'graph' on a CPU compiles the routers' own choice"):
        engine.place(system("lru").__class__("x", "x", "lru", execution="graph"), 0.5, None, None)


def test_other_prompts_are_routed_by_the_model_itself(engine) -> None:
    engine.place_full()
    recorded, _ = _events(engine, [(1, 2, 3)])
    assert not (recorded[engine.geometry.layers] == engine.traces.requests[0].experts[PROMPT, 0]).all()


def test_generate_says_what_it_ran_on(tmp_path) -> None:
    found = opened("olmoe", tmp_path, layers=3)
    full = random_generate(found.random, system("full"), 1.0, 6)
    ours = random_generate(found.random, system("lru"), 0.3, 6)
    assert ours.origin == full.origin == "random weights, replayed routing, the first 3 layers"
    assert ours.sha256 == full.sha256 and 0 < ours.hit_rate < 1
    # bf16: 3 matrices of 32 x 16.
    assert ours.bytes["resident"] == round(0.3 * 36) * 3072 and full.bytes["resident"] == 36 * 3072
    with pytest.raises(InputError, match="the longest request of"):
        random_generate(found.random, system("lru"), 0.3, 60)


def test_the_worker_runs_a_cell_of_random_weights(tmp_path) -> None:
    found = opened("olmoe", tmp_path, requests=(0, 1), warm_up=2, predictor="previous")
    cell = Cell(
        "demo", "p", "seqmoe", "tiny", "measured", 0.4, 1, "traces", 2, 6, routing="replay", weights="random",
        predictor="previous",
    )  # fmt: skip
    request = {
        "protocol": 1, "cell": asdict(cell), "model_path": "", "model_format": "hf", "prompts": [], "decode_tokens": 6,
        "device": "cpu", "threads": 1, "random": asdict(found.random),
    }  # fmt: skip
    out = io.StringIO()
    Worker(out).serve(io.StringIO(json.dumps(request) + "\n"))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert events[-1] == {"event": "done"}
    stats = {event["name"]: event.get("value") for event in events if event["event"] == "stat"}
    assert stats["same_answer"] is True and stats["max_logit_difference"] == 0
    assert stats["needed"] == 2 * 5 * 4 * 3 and stats["warmup"]["decode_tok_s"] > 0
    assert len([event for event in events if event["event"] == "token"]) == 12
