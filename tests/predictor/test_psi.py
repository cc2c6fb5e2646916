"""Protects Psi: the softmax over the active experts, whatever a trace carries, and nothing for what it lacks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from seqmoe.predictor.psi import activations, psi_of_logits
from seqmoe.spec.trace import DECODE, MISSING, RequestTrace

EXPERTS = 6


def _request(experts, **arrays):
    experts = np.array(experts, dtype=np.int16)
    arrays = {name: np.array(values, dtype=np.float32) for name, values in arrays.items()}
    return RequestTrace(experts, np.full(len(experts), DECODE, dtype=np.uint8), **arrays)


def _dense_softmax(logits, kept):
    """The paper's words: all others at minus infinity, then softmax."""
    whole = np.full(EXPERTS, -np.inf)
    whole[list(kept)] = [logits[expert] for expert in kept]
    return softmax(whole)


def test_logits_become_a_softmax_over_the_active():
    full = np.random.default_rng(0).normal(size=EXPERTS) * 3
    kept = np.argsort(-full)[:3]
    request = _request([[kept]], logits=[[full[kept]]], weights=[[[0.1, 0.1, 0.1]]])
    assert activations(request, EXPERTS, "sigmoid")[0, 0] == pytest.approx(_dense_softmax(full, kept), abs=1e-6)
    # What the router of a softmax model gives, renormalised or not, leads to the same numbers.
    for weights in (softmax(full[kept]), softmax(full)[kept]):
        request = _request([[kept]], weights=[[weights]])
        assert activations(request, EXPERTS, "softmax")[0, 0] == pytest.approx(_dense_softmax(full, kept), abs=1e-6)
    assert psi_of_logits(full, 3) == pytest.approx(_dense_softmax(full, kept), abs=1e-6)


def test_without_weights_every_active_expert_counts_the_same():
    assert activations(_request([[[4, 1]]]), EXPERTS)[0, 0].tolist() == [0, 0.5, 0, 0, 0.5, 0]


def test_a_missing_layer_is_zero_and_an_active_expert_never_is():
    request = _request([[[0, 1], [MISSING, MISSING]]], weights=[[[1, 0], [0, 0]]])
    result = activations(request, EXPERTS, "softmax_renormalised")
    assert not result[0, 1].any()
    assert (result[0, 0] > 0).tolist() == [True, True, False, False, False, False]
    huge = _request([[[0, 1], [MISSING, MISSING]]], logits=[[[500, -500], [0, 0]]])
    assert (activations(huge, EXPERTS)[0, 0, :2] > 0).all() and activations(huge, EXPERTS).sum() == pytest.approx(1)


def test_psi_off_is_the_raw_logits_up_to_a_constant():
    full = np.random.default_rng(1).normal(size=EXPERTS)
    kept = [5, 0, 2]
    raw = activations(_request([[kept]], logits=[[full[kept]]]), EXPERTS, psi=False)[0, 0]
    assert raw[kept] == pytest.approx(full[kept]) and not raw[[1, 3, 4]].any()
    shifted = activations(_request([[kept]], weights=[[softmax(full)[kept]]]), EXPERTS, "softmax", psi=False)[0, 0]
    assert np.ptp(shifted[kept] - full[kept]) == pytest.approx(0, abs=1e-5)
    assert shifted[kept].min() == pytest.approx(1) and not shifted[[1, 3, 4]].any()


def test_a_prediction_keeps_top_k_even_of_equals():
    result = psi_of_logits(np.zeros((3, EXPERTS), dtype=np.float32), 2)
    assert (result > 0).sum(-1).tolist() == [2, 2, 2] and result.sum(-1) == pytest.approx(np.ones(3))
    for top_k in (0, EXPERTS + 1):
        with pytest.raises(ValueError, match="top_k"):
            psi_of_logits(np.zeros(EXPERTS), top_k)
    with pytest.raises(ValueError, match="router"):
        activations(_request([[[0]]]), EXPERTS, "softmx")
