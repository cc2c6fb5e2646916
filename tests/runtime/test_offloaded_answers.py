"""Protects the promise that offloading never changes the model's answer, bit by bit, for every system and pool size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_models import CONFIGS, save_tiny
from transformers import AutoModelForCausalLM

from seqmoe.predictor.first_order import FirstOrder
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.retention import Offline
from seqmoe.simulate.policies.learned import FEATURES
from seqmoe.spec.pace import MissPrices, Pace
from seqmoe.spec.system import SYSTEMS, system

PROMPT = list(b"a prompt of some length, so that it needs many experts at once")
PROMPTS = [PROMPT, PROMPT[:7], PROMPT[20:50], PROMPT[3:4]]
TOKENS = 64
OFFLOADED = [name for name, spec in SYSTEMS.items() if spec.retention != "all"]
# A layer of 0.1 ms, an expert in as long: the worker is always at work, and no token waits for long.
LINK = Emulation(Pace(1e-4, 1e-4, MissPrices(1e-4, 2e-4, 1e-4, 1e-5, 1e-6)), 1.0)


def _predictor(geometry) -> FirstOrder:
    shape = (geometry.layers, geometry.experts, geometry.experts)
    chance = np.random.default_rng(0).random(shape, dtype=np.float32)
    return FirstOrder(chance / chance.sum(-1, keepdims=True) * geometry.top_k, geometry.top_k, recent=0.5)


def _offline(geometry) -> Offline:
    rng = np.random.default_rng(1)
    popularity = rng.dirichlet(np.ones(geometry.experts), geometry.layers) * geometry.top_k
    return Offline(popularity.astype(np.float32), rng.normal(0.2, 0.1, len(FEATURES)).astype(np.float32))


def _place(engine, name, residency, emulation=None):
    geometry = engine.geometry
    engine.place(system(name), residency, _predictor(geometry), emulation, _offline(geometry))
    engine.pacer = None  # only the link is slow


@pytest.fixture(scope="module", params=["qwen3_moe_tiny", *CONFIGS])
def family(request, tiny_checkpoint, tmp_path_factory):
    """An engine of each family, and full load's answers: of all prompts together, and of each alone."""
    torch.set_num_threads(1)
    folder = tiny_checkpoint
    if request.param != "qwen3_moe_tiny":
        folder = tmp_path_factory.mktemp(request.param)
        save_tiny(request.param, folder, tiny_checkpoint)
    engine = Engine.load(folder)
    engine.place_full()
    prompts = PROMPTS if engine.checkpoint.family.static_cache else [PROMPT[start : start + 9] for start in range(4)]
    alone = [engine.generate(prompt, TOKENS, keep_logits=True) for prompt in prompts]
    together = engine.generate_batch(prompts, TOKENS, keep_logits=True)
    yield request.param, engine, prompts, alone, together
    engine.close()


@pytest.fixture(scope="module")
def engine(tiny_checkpoint):
    torch.set_num_threads(1)
    engine = Engine.load(tiny_checkpoint)
    yield engine
    engine.close()


def _same(got, expected):
    assert [result.tokens for result in got] == [result.tokens for result in expected]
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(torch.stack(one.logits), torch.stack(other.logits))


def test_full_load_equals_transformers(engine, tiny_checkpoint):
    engine.place_full()
    ours = engine.generate(PROMPT, TOKENS, keep_logits=True)
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32, experts_implementation="eager")
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        theirs = model.generate(ids, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)[0, len(PROMPT) :]
        logits = model(torch.tensor([PROMPT + ours.tokens[:-1]])).logits[0, len(PROMPT) - 1 :]
    assert ours.tokens == theirs.tolist()
    assert torch.stack(ours.logits) == pytest.approx(logits, abs=1e-4)


def test_requests_of_different_lengths_answer_as_alone(family):
    _, _, _, alone, together = family
    assert [result.tokens for result in together] == [result.tokens for result in alone]
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(torch.stack(one.logits), torch.stack(other.logits), atol=1e-3)


def test_every_system_gives_full_loads_logits_in_every_family(family):
    """Over the families each system meets every pool size, alone or in a batch of four, with a slow or a quick link.

    Each family meets every system and every pool size.
    """
    name, engine, prompts, alone, together = family
    geometry = engine.geometry
    shift = ["qwen3_moe_tiny", *CONFIGS].index(name)
    for number, chosen in enumerate(OFFLOADED):
        place = number + shift
        batch = 4 if place // 4 % 2 else 1
        smallest = geometry.least_slots(batch) / geometry.total_experts
        residency = max((1.0, 0.45, 0.15, 0.0)[place % 4], smallest)
        _place(engine, chosen, residency, LINK if number % 3 else None)
        if batch == 1:
            _same([engine.generate(prompts[0], TOKENS, keep_logits=True)], alone[:1])
        else:
            _same(engine.generate_batch(prompts, TOKENS, keep_logits=True), together)


def test_a_compressed_context_runs_equal_lengths_together_and_the_others_in_turn(tiny_checkpoint, tmp_path):
    save_tiny("deepseek_v4", tmp_path, tiny_checkpoint)
    engine = Engine.load(tmp_path)
    alone = [engine.generate(prompt, 6).tokens for prompt in PROMPTS]
    shuffled = [PROMPTS[0], PROMPTS[1], PROMPTS[1], PROMPTS[2], PROMPTS[3]]
    assert [result.tokens for result in engine.generate_batch(shuffled, 6)] == [
        alone[0], alone[1], alone[1], alone[2], alone[3],
    ]  # fmt: skip
    engine.close()


@pytest.mark.parametrize("residency", [1 / 16, 0.15, 0.45, 1.0])
@pytest.mark.parametrize("name", OFFLOADED)
def test_every_system_at_every_size_gives_full_loads_logits(engine, name, residency):
    engine.place_full()
    expected = engine.generate(PROMPT, 24, keep_logits=True)
    _place(engine, name, residency, LINK)
    _same([engine.generate(PROMPT, 24, keep_logits=True)], [expected])


def test_one_expert_after_another_gives_the_same_tokens(family):
    _, engine, prompts, alone, _ = family
    _place(engine, "lru", 0.45)
    engine.router.eager = True
    got = engine.generate(prompts[0], TOKENS, keep_logits=True)
    engine.router.eager = False
    assert got.tokens == alone[0].tokens
    assert torch.allclose(torch.stack(got.logits), torch.stack(alone[0].logits), atol=1e-3)


def test_a_second_prompt_starts_from_a_warm_pool(engine):
    engine.place_full()
    expected = [engine.generate(prompt, TOKENS).tokens for prompt in (PROMPT, PROMPT[::-1])]
    _place(engine, "seqmoe", 0.45, LINK)
    assert [engine.generate(prompt, TOKENS).tokens for prompt in (PROMPT, PROMPT[::-1])] == expected


def test_hits_misses_and_late_add_up(engine):
    _place(engine, "seqmoe", 0.45, LINK)
    engine.generate(PROMPT, TOKENS)
    totals = engine.offloaded.pipeline.statistics()
    assert totals["needed"] == totals["hits"] + totals["late"] + totals["misses"]
    assert totals["prefetch_sent"] >= totals["prefetch_landed"] >= totals["prefetch_used"]
    assert totals["hits"] > 0
    assert totals["prefetch_landed"] > 0


def test_naive_never_hits_and_lru_at_full_residency_always_does_once_warm(engine):
    _place(engine, "naive", 0.45)
    engine.generate(PROMPT, TOKENS)
    assert engine.offloaded.pipeline.statistics()["hits"] == 0
    _place(engine, "lru", 1.0)
    engine.generate(PROMPT, TOKENS)
    engine.offloaded.pipeline.reset_statistics()
    engine.generate(PROMPT, TOKENS)
    assert engine.offloaded.pipeline.statistics()["misses"] == 0


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [
        ([], 4, "no tokens"),
        (PROMPT, 0, "at least 1"),
        (PROMPT, 500, "exceed the model's context of 512"),
        (PROMPT * 80, 1, "exceed the model's context of 512"),
    ],
)
def test_impossible_lengths_are_refused(engine, prompt, tokens, message):
    engine.place_full()
    with pytest.raises(ValueError, match=message):
        engine.generate(prompt, tokens)


@pytest.mark.parametrize(("residency", "message"), [(0.0, r"\(0, 1\]"), (1.5, r"\(0, 1\]"), (0.04, "0.0625")])
def test_impossible_residencies_are_refused(engine, residency, message):
    with pytest.raises(ValueError, match=message):
        _place(engine, "lru", residency)


def test_a_batch_that_the_pool_cannot_hold_is_refused(engine):
    _place(engine, "lru", 6 / 48)
    assert len(engine.generate_batch(PROMPTS[:2], 4)) == 2
    with pytest.raises(ValueError, match="batch of 4"):
        engine.generate_batch(PROMPTS, 4)
