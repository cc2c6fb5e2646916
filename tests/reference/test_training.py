"""Protects the recipe: what its routing losses count, its schedule, and that an interrupted run ends as a whole one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqmoe.reference import arithmetic, corpus, tokenizer
from seqmoe.reference.recipe import Recipe
from seqmoe.reference.routing_losses import measure_routing, routing_loss
from seqmoe.reference.training import train

TINY = Recipe(
    hidden_size=32, layers=2, attention_heads=2, key_value_heads=1, head_size=16, experts=8, top_k=2, vocabulary=300,
    context=64, sequence_length=32, sequences_per_step=2, tokens=32 * 2 * 8, held_out_share=0.1,
)  # fmt: skip


def _logits(choices):
    """Router logits that choose exactly these experts of four, one sequence of tokens."""
    logits = torch.full((len(choices), 4), -20.0)
    for token, experts in enumerate(choices):
        logits[token, list(experts)] = 0.0
    return logits


def test_routing_is_counted_by_hand():
    recipe = replace(TINY, experts=4, sequences_per_step=1)
    routing = measure_routing((_logits([(0, 1), (1, 2), (1, 2), (3, 0)]),), recipe)
    assert routing.overlap.item() == pytest.approx((1 + 2 + 0) / 6)
    # The router's probability is half on each chosen expert, so its mass on the previous token's is the same share.
    assert routing.distance.item() == pytest.approx(0.5, abs=1e-4)
    load = np.array([2, 3, 2, 1]) / 8
    assert routing.balance.item() == pytest.approx(4 * (load**2).sum(), abs=1e-4)


def test_sequences_of_a_batch_are_not_neighbours():
    recipe = replace(TINY, experts=4, sequences_per_step=2)
    routing = measure_routing((_logits([(0, 1), (0, 1), (2, 3), (2, 3)]),), recipe)
    assert routing.overlap.item() == 1


def test_losses_act_only_outside_their_bounds():
    recipe = replace(TINY, experts=4, sequences_per_step=1, balance_margin=1.5, reuse_target=0.6, reuse_start_share=0.5)
    steady = measure_routing((_logits([(0, 1), (1, 2), (2, 3), (3, 0)] * 4),), recipe)
    restless = measure_routing((_logits([(0, 1), (2, 3)] * 8),), recipe)
    uneven = measure_routing((_logits([(0, 1)] * 16),), recipe)
    late = recipe.steps - 1
    assert routing_loss(restless, recipe, step=0) == 0
    assert routing_loss(restless, recipe, late) == pytest.approx(recipe.reuse_weight, rel=1e-3)
    assert routing_loss(uneven, recipe, late) == pytest.approx(recipe.balance_weight * 0.5, rel=1e-3)
    assert routing_loss(steady, replace(recipe, reuse_target=0.4), late) == 0


def test_schedule_warms_up_stays_and_decays():
    recipe = Recipe(tokens=Recipe().tokens_per_step * 1000, warmup_share=0.1, decay_share=0.2)
    rates = [recipe.learning_rate_at(step) for step in range(recipe.steps)]
    assert rates[0] == pytest.approx(recipe.learning_rate / 100)
    assert set(rates[100:801]) == {recipe.learning_rate}
    assert all(later <= earlier for earlier, later in pairwise(rates[800:]))
    assert rates[-1] == pytest.approx(recipe.learning_rate * 0.02)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"expert_width": 48}, "multiple of 32"),
        ({"top_k": 65}, "top_k=65"),
        ({"decay_share": 0.99}, "must not exceed 1"),
    ],
)
def test_impossible_recipes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**wrong)


@pytest.fixture
def folder(tmp_path):
    """A prepared training folder of a few arithmetic problems."""
    documents = list(arithmetic.documents(20_000, seed=1))
    learned = tokenizer.train(documents, TINY.vocabulary)
    learned.save_pretrained(tmp_path / "tokenizer")
    ids = np.concatenate([learned.backend_tokenizer.encode(text).ids for text in documents]).astype(np.uint16)
    np.savez(tmp_path / "tokens.npz", train=ids[:-600], held_out=ids[-600:])
    (tmp_path / "sources.json").write_text("[]")
    return tmp_path


class Stopped(Exception):
    pass


def test_an_interrupted_run_ends_as_a_whole_one(folder, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    for name in ("tokens.npz", "sources.json"):
        (other / name).write_bytes((folder / name).read_bytes())
    (other / "tokenizer").symlink_to(folder / "tokenizer")
    whole = load_file(train(TINY, folder) / "model.safetensors")

    from seqmoe.reference import training

    real = training.batch_at

    def stop_at_five(step, *rest):
        if step == 5:
            raise Stopped
        return real(step, *rest)

    monkeypatch.setattr(training, "batch_at", stop_at_five)
    with pytest.raises(Stopped):
        train(TINY, other, checkpoint_minutes=0.0)
    monkeypatch.setattr(training, "batch_at", real)
    resumed = load_file(train(TINY, other, checkpoint_minutes=0.0) / "model.safetensors")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    points = [json.loads(line) for line in (other / "log.jsonl").read_text().splitlines()]
    assert [point["step"] for point in points] == list(range(1, TINY.steps + 1))


def test_arithmetic_answers_are_right():
    text = "\n".join(arithmetic.documents(30_000, seed=3))
    sums = [line.split() for line in text.splitlines() if line.startswith("Problem: Add ")]
    answers = [line.split()[1] for line in text.splitlines() if line.startswith("Answer: ")]
    assert len(sums) > 10
    for words in sums:
        assert str(int(words[2]) + int(words[4].rstrip("."))) in answers


def test_the_held_out_split_depends_on_the_text_alone():
    documents = [f"document {index}" for index in range(4000)]
    held_out = [text for text in documents if corpus.is_held_out(text, 0.1)]
    assert 0.08 < len(held_out) / len(documents) < 0.12
    assert held_out == [text for text in documents if corpus.is_held_out(text, 0.1)]
    assert set(held_out) < set(text for text in documents if corpus.is_held_out(text, 0.2))
