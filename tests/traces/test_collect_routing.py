"""Protects the routing pass: what is read from several sequences at once is what each gives alone, in every family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from collect_models import EXPERTS, FAMILIES, TOP_K, VOCABULARY, build

from seqmoe.spec.trace import MISSING
from seqmoe.traces.collect.routing import RoutingRecorder, isolates, packs

LENGTHS = (7, 33, 1, 20)


@pytest.fixture(scope="module", params=FAMILIES)
def traced(request):
    return build(request.param)


@pytest.fixture(scope="module")
def sequences():
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(0, VOCABULARY, (length,), generator=draw).tolist() for length in LENGTHS]


def alone(model, family, sequence):
    """Of a plain forward of one sequence: each layer's router input, and its router's answer."""
    states, answers = [], []

    def keep(router, inputs, output):
        states.append(inputs[0].reshape(len(sequence), -1))
        answers.append(output)

    handles = [router.register_forward_hook(keep) for router in family.routers(model)]
    with torch.no_grad():
        model(torch.tensor([sequence]))
    for handle in handles:
        handle.remove()
    return states, answers


def test_equals_a_plain_forward_of_each_sequence(traced, sequences):
    model, family = traced
    recorded = RoutingRecorder(model, family).record(sequences, packed=family.packs)
    for sequence, found in zip(sequences, recorded, strict=True):
        _, answers = alone(model, family, sequence)
        assert found.experts.shape == (len(sequence), family.shape(model.config).layers, TOP_K)
        for layer, (logits, weights, indices) in enumerate(answers):
            assert np.array_equal(found.experts[:, layer], indices.numpy()), layer
            assert np.allclose(found.weights[:, layer], weights, atol=1e-4)
            assert np.allclose(found.logits[:, layer], logits.gather(1, indices), atol=2e-3)


def by_hand(router, state, tokens, count):
    """The ``count`` experts of largest score, in plain numpy."""
    scores = state.numpy() @ router.weight.detach().numpy().T
    if hasattr(router, "bias"):
        scores = scores + router.bias.detach().numpy()
    if hasattr(router, "score_fn"):
        scores = np.sqrt(np.log1p(np.exp(scores)))
    if hasattr(router, "e_score_correction_bias"):
        scores = scores + router.e_score_correction_bias.numpy()
    if hasattr(router, "tid2eid"):
        np.put_along_axis(scores, router.tid2eid.numpy()[tokens], np.inf, axis=1)
    return [set(row[:count]) for row in np.argsort(-scores, axis=1, kind="stable")]


def test_early_choice_is_the_next_router_on_this_layers_state(traced, sequences):
    model, family = traced
    recorded = RoutingRecorder(model, family).record(sequences, packed=family.packs)
    routers = family.routers(model)
    for sequence, found in zip(sequences, recorded, strict=True):
        states, _ = alone(model, family, sequence)
        assert found.early.shape[2] == TOP_K + 4
        assert (found.early[:, 0] == MISSING).all()
        for layer in range(1, len(routers)):
            for count in (TOP_K, TOP_K + 4):  # best first: a prefix is the choice of fewer
                expected = by_hand(routers[layer], states[layer - 1], sequence, count)
                assert [set(row[:count]) for row in found.early[:, layer].tolist()] == expected


def test_hash_layers_are_forecast_perfectly(sequences):
    model, family = build("deepseek_v4")
    hashed = [layer for layer in family.hash_layers(model.config) if layer > 0]
    assert hashed
    for found in RoutingRecorder(model, family).record(sequences, packed=False):
        for layer in hashed:
            chosen = np.sort(found.experts[:, layer], axis=1)
            assert np.array_equal(np.sort(found.early[:, layer, :TOP_K], axis=1), chosen)


def test_without_early_nothing_is_kept(sequences):
    model, family = build("mixtral")
    assert RoutingRecorder(model, family, early=False).record(sequences, packed=True)[0].early is None
    assert not family.routers(model)[0]._forward_hooks


def test_early_is_never_wider_than_the_experts(sequences):
    model, family = build("mixtral")
    model.config.num_experts_per_tok = EXPERTS - 1
    assert RoutingRecorder(model, family).record(sequences, packed=True)[0].early.shape[2] == EXPERTS


def test_isolation_is_what_the_family_says(traced):
    model, family = traced
    assert isolates(model, family) == family.packs


def test_isolation_is_tried_not_believed():
    model, family = build("qwen3_5_moe")
    assert not isolates(model, replace(family, packs=True))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_both_attention_implementations_isolate(attention):
    model, family = build("qwen3_moe")
    model.set_attn_implementation(attention)
    assert isolates(model, family)


@pytest.mark.parametrize(
    ("lengths", "packed", "expected"),
    [
        ([4, 4, 4, 4], True, [2, 2]),
        ([4, 5, 1], True, [1, 2]),
        ([20, 1, 20], True, [1, 1, 1]),
        ([2, 5, 2, 2], False, [2, 2]),
        ([2, 2, 2, 9], False, [3, 1]),
        ([], True, []),
    ],
)
def test_packs(lengths, packed, expected):
    chosen = list(packs(lengths, 8 if packed else 10, packed))
    assert [len(part) for part in chosen] == expected
    assert [index for part in chosen for index in part] == list(range(len(lengths)))
