"""Protects the promise that offloading never changes the model's answer, bit by bit, for every system and pool size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from seqmoe.predictor.first_order import FirstOrder
from seqmoe.runtime.engine import Engine
from seqmoe.spec.system import system

PROMPT = list(b"a prompt of some length, so that it needs many experts at once")
TOKENS = 24
# 4 layers x 12 experts; 1/16 is one token's three experts, so that every prompt is computed in groups.
RESIDENCIES = (1 / 16, 0.15, 0.45, 1.0)


@pytest.fixture(scope="module")
def engine(tiny_checkpoint):
    torch.set_num_threads(1)
    engine = Engine.load(tiny_checkpoint)
    yield engine
    engine.close()


@pytest.fixture
def predictor() -> FirstOrder:
    chance = np.random.default_rng(0).random((4, 12, 12), dtype=np.float32)
    return FirstOrder(chance / chance.sum(-1, keepdims=True) * 3, top_k=3, recent=0.5)


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


@pytest.mark.parametrize("residency", RESIDENCIES)
@pytest.mark.parametrize("name", ["naive", "lru", "seqmoe"])
@pytest.mark.parametrize("ratio", [None, 0.9])
def test_every_system_gives_full_loads_logits(engine, predictor, name, residency, ratio):
    engine.place_full()
    expected = engine.generate(PROMPT, TOKENS, keep_logits=True)
    emulation = engine.emulate(ratio) if ratio else None
    engine.place(system(name), residency, predictor, emulation)
    got = engine.generate(PROMPT, TOKENS, keep_logits=True)
    assert got.tokens == expected.tokens
    assert torch.equal(torch.stack(got.logits), torch.stack(expected.logits))


def test_a_second_prompt_starts_from_a_warm_pool(engine, predictor):
    engine.place_full()
    expected = [engine.generate(prompt, TOKENS).tokens for prompt in (PROMPT, PROMPT[::-1])]
    engine.place(system("seqmoe"), 0.45, predictor, engine.emulate(2.0))
    assert [engine.generate(prompt, TOKENS).tokens for prompt in (PROMPT, PROMPT[::-1])] == expected


def test_hits_misses_and_late_add_up(engine, predictor):
    engine.place(system("seqmoe"), 0.45, predictor, engine.emulate(0.9))
    engine.generate(PROMPT, TOKENS)
    totals = engine.offloaded.pipeline.statistics()
    assert totals["needed"] == totals["hits"] + totals["late"] + totals["misses"]
    assert totals["prefetch_sent"] >= totals["prefetch_landed"] >= totals["prefetch_used"]
    assert totals["hits"] > 0
    assert totals["prefetch_landed"] > 0


def test_naive_never_hits_and_lru_at_full_residency_always_does_once_warm(engine):
    engine.place(system("naive"), 0.45, None, None)
    engine.generate(PROMPT, TOKENS)
    assert engine.offloaded.pipeline.statistics()["hits"] == 0
    engine.place(system("lru"), 1.0, None, None)
    engine.generate(PROMPT, TOKENS)
    engine.offloaded.pipeline.reset_statistics()
    engine.generate(PROMPT, TOKENS)
    assert engine.offloaded.pipeline.statistics()["misses"] == 0


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [([], 4, "no tokens"), (PROMPT, 0, "at least 1"), (PROMPT, 500, "exceed the model's context of 512")],
)
def test_impossible_lengths_are_refused(engine, prompt, tokens, message):
    with pytest.raises(ValueError, match=message):
        engine.generate(prompt, tokens)
