"""Protects changing batches: whoever joins or leaves, each request's logits and tokens are those it has alone."""

from __future__ import annotations

import pytest
import torch
from family_models import CONFIGS, save_tiny

import seqmoe
from seqmoe.runtime.batching import LENGTH, STOP, BatchSession
from seqmoe.runtime.sampling import Sampler, Sampling

PROMPTS = [list(b"a prompt of some length"), list(b"xy"), list(b"another one, longer than the others are"), [7]]
TOKENS = [24, 9, 15, 20]
HOW = [
    Sampling(ignore_end=True),
    Sampling(1.0, 0.9, seed=3, ignore_end=True),
    Sampling(1.3, seed=4, ignore_end=True),
    Sampling(ignore_end=True),
]


@pytest.fixture(params=["qwen3_moe_tiny", *CONFIGS])
def family_folder(request, tiny_checkpoint, tmp_path):
    if request.param == "qwen3_moe_tiny":
        return tiny_checkpoint
    save_tiny(request.param, tmp_path, tiny_checkpoint)
    return tmp_path


@pytest.fixture
def seen(monkeypatch):
    """The logits that each choice was made from, by sampler."""
    seen: dict[Sampler, list[torch.Tensor]] = {}
    choose = Sampler.choose

    def record(self, logits):
        seen.setdefault(self, []).append(logits.clone())
        return choose(self, logits)

    monkeypatch.setattr(Sampler, "choose", record)
    return seen


def _together(session, batch, arrivals):
    """Run requests that arrive at these steps; the members in the order of their prompts."""
    members = {}
    step = 0
    while len(members) < len(arrivals) or batch.members:
        for number, arrival in enumerate(arrivals):
            if arrival == step:
                members[number] = batch.admit(PROMPTS[number], TOKENS[number], HOW[number])
        batch.step()
        step += 1
    return [members[number] for number in range(len(arrivals))]


@pytest.mark.parametrize("system", ["lru", "naive"])
def test_each_request_has_the_logits_it_has_alone(family_folder, system, seen):
    with seqmoe.load(family_folder, 1.0, "full") as session:
        batch = BatchSession(session)
        alone = []
        for number in range(4):
            alone.append(batch.admit(PROMPTS[number], TOKENS[number], HOW[number]))
            while batch.members:
                batch.step()
        stream = session.generate(PROMPTS[0], TOKENS[0])
        assert alone[0].tokens == stream.result.tokens
    with seqmoe.load(family_folder, 0.45, system) as session:
        batch = BatchSession(session)
        together = _together(session, batch, [0, 0, 3, 5])
        assert batch.decode["needed"] > 0 and batch.prefill["misses"] > 0
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert one.ended == other.ended == LENGTH
        assert torch.equal(torch.stack(seen[one._sampler]), torch.stack(seen[other._sampler]))


def test_who_leaves_changes_nothing_for_the_others(tiny_checkpoint):
    with seqmoe.load(tiny_checkpoint, 0.45, "lru") as session:
        expected = session.generate(PROMPTS[0], 24).result.tokens
        batch = BatchSession(session)
        first, second = (batch.admit(prompt, 24, Sampling(ignore_end=True)) for prompt in PROMPTS[:2])
        for _ in range(4):
            assert batch.step() == [first, second]
        batch.leave(second)
        while batch.members:
            assert batch.step() == [first]
        assert first.tokens == expected
        assert len(second.tokens) == 5


def test_an_error_in_a_step_ends_it_for_all_and_a_reset_begins_anew(tiny_checkpoint, monkeypatch):
    with seqmoe.load(tiny_checkpoint, 0.45, "lru") as session:
        expected = session.generate(PROMPTS[0], 12).result.tokens
        batch = BatchSession(session)
        for prompt in PROMPTS[:3]:
            batch.admit(prompt, 12, Sampling(ignore_end=True))
        with monkeypatch.context() as patch:
            patch.setattr(type(session.engine.router), "compute_together", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                batch.step()
        batch.reset()
        assert not batch.members
        member = batch.admit(PROMPTS[0], 12, Sampling(ignore_end=True))
        while batch.members:
            batch.step()
        assert member.tokens == expected


def test_more_than_the_pool_holds_is_refused(tiny_checkpoint):
    with seqmoe.load(tiny_checkpoint, 6 / 48, "lru") as session:
        batch = BatchSession(session)
        batch.admit(PROMPTS[0], 8)
        batch.admit(PROMPTS[1], 8)
        with pytest.raises(ValueError, match="batch of 3"):
            batch.admit(PROMPTS[2], 8)


def test_the_end_of_text_ends_a_request_and_is_no_token():
    sampler = Sampler(Sampling(), [2])
    logits = torch.tensor([0.0, 1.0, 5.0])
    assert sampler.ends(sampler.choose(logits))
    assert Sampler(Sampling(ignore_end=True), [2]).choose(logits) == 1
    assert STOP != LENGTH
