"""Protects the routing statistics, against numbers that can be counted by hand and against published ones."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet
from seqmoe.traces.importers import import_traces
from seqmoe.traces.statistics import quantile, routing_profile, routing_statistics


def _traces(experts, count, prefill=0):
    phase = np.full(len(experts), DECODE, dtype=np.uint8)
    phase[:prefill] = PREFILL
    request = RequestTrace(np.array(experts, dtype=np.int16), phase)
    return TraceSet("t", request.experts.shape[1], count, request.experts.shape[2], (request,))


def test_counted_by_hand():
    # One layer, top-2 of 4: {0,1} {1,2} {1,2} {3,0}: overlaps 1/2, 2/2, 0/2.
    statistics = routing_statistics(_traces([[[0, 1]], [[1, 2]], [[2, 1]], [[3, 0]]], 4))
    assert statistics.overlap == pytest.approx(0.5)
    share = np.array([2, 3, 2, 1]) / 8
    assert statistics.entropy == pytest.approx(-(share * np.log(share)).sum() / np.log(4))
    assert statistics.distinct == 4
    # Reuse: 1 after 1 and after 1, 2 after 1, 0 after 3; four first uses of eight.
    assert statistics.reuse_median == 1
    assert statistics.first_use == 0.5


def test_prefill_is_counted_but_not_described():
    experts = [[[0, 1]], [[0, 1]], [[2, 3]], [[2, 0]]]
    statistics = routing_statistics(_traces(experts, 4, prefill=2))
    assert (statistics.tokens, statistics.prefill_tokens) == (2, 2)
    assert statistics.overlap == 0.5
    assert statistics.distinct == 3


def test_missing_layers_are_left_out():
    m = MISSING
    experts = [[[0, 1], [m, m]], [[0, 1], [2, 3]], [[0, 2], [2, 3]]]
    profile = routing_profile(_traces(experts, 4))
    assert profile.overlap.tolist() == [0.75, 1.0]
    assert profile.statistics.overlap == pytest.approx((1 + 0.5 + 1) / 3)
    assert profile.reuse[1].tolist() == [0, 2]
    gone = routing_profile(_traces([[[0, 1], [m, m]]] * 3, 4))
    assert np.isnan(gone.overlap[1]) and np.isnan(gone.entropy[1]) and np.isnan(gone.distinct[1])
    assert (gone.statistics.overlap, gone.statistics.distinct, gone.statistics.entropy_min) == (1, 2, 0.5)
    nothing = routing_profile(_traces([[[m, m], [m, m]]], 4)).statistics
    assert (nothing.tokens, nothing.overlap, nothing.entropy, nothing.reuse_median) == (1, 0, 0, 0)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 3), st.floats(0, 0.4))
def test_reuse_distances_are_those_of_a_plain_loop(seed, steps, top_k, absent):
    rng = np.random.default_rng(seed)
    experts = np.argsort(rng.random((steps, 3, 6)), axis=-1)[..., :top_k]
    experts[rng.random((steps, 3)) < absent] = MISSING
    profile = routing_profile(_traces(experts, 6))
    counts, firsts, shared = np.zeros((3, steps + 1), int), np.zeros(3, int), np.zeros(3)
    for layer in range(3):
        last, event = {}, 0
        for step in range(steps):
            chosen = set(experts[step, layer].tolist())
            if chosen == {MISSING}:
                continue
            for expert in chosen:
                if expert in last:
                    counts[layer, event - last[expert]] += 1
                else:
                    firsts[layer] += 1
                last[expert] = event
            event += 1
            if step and experts[step - 1, layer, 0] != MISSING:
                shared[layer] += len(chosen & set(experts[step - 1, layer].tolist()))
    assert np.array_equal(profile.reuse, counts[:, : profile.reuse.shape[1]])
    assert not counts[:, profile.reuse.shape[1] :].any()
    assert np.array_equal(profile.first_uses, firsts)
    pairs = ((experts[1:, :, 0] != MISSING) & (experts[:-1, :, 0] != MISSING)).sum(0)
    known = pairs > 0
    assert profile.overlap[known] == pytest.approx(shared[known] / pairs[known] / top_k)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=50), st.sampled_from([0.25, 0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_numpys(values, share):
    expected = np.quantile(values, share, method="inverted_cdf")
    assert quantile(np.bincount(values), share) == expected


def test_one_request_is_in_memory_at_a_time():
    alive: list[weakref.ref[np.ndarray]] = []

    class OnDemand(Sequence):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            if index >= len(self):
                raise IndexError
            assert sum(one() is not None for one in alive) <= 1  # the request before this one, still in its variable
            request = _traces([[[0, 1]], [[1, 2]]], 4).requests[0]
            alive.append(weakref.ref(request.experts))
            return request

    told = []
    profile = routing_profile(TraceSet("t", 1, 4, 2, OnDemand()), progress=told.append)
    assert profile.lengths.tolist() == [2] * 5
    assert told == [1, 2, 3, 4, 5]


def test_gpt_oss_overlap_is_the_published_one(real_data):
    traces = import_traces(real_data / "traces" / "gpt-oss-20b.npz")
    statistics = routing_statistics(traces)
    assert (statistics.requests, statistics.tokens) == (393, 132_660)
    assert statistics.overlap == pytest.approx(0.434, abs=0.01)
    assert statistics.overlap_shuffled == pytest.approx(0.304, abs=0.01)
