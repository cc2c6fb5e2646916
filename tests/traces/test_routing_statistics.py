"""Protects the routing statistics, against numbers that can be counted by hand and against published ones."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet
from seqmoe.traces.importers import import_traces
from seqmoe.traces.statistics import routing_statistics


def _traces(experts, count):
    request = RequestTrace(np.array(experts, dtype=np.int16), np.full(len(experts), DECODE, dtype=np.uint8))
    return TraceSet("t", request.experts.shape[1], count, request.experts.shape[2], (request,))


def test_counted_by_hand():
    # One layer, top-2 of 4: {0,1} {1,2} {1,2} {3,0}: overlaps 1/2, 2/2, 0/2.
    statistics = routing_statistics(_traces([[[0, 1]], [[1, 2]], [[2, 1]], [[3, 0]]], 4))
    assert statistics.overlap == pytest.approx(0.5)
    share = np.array([2, 3, 2, 1]) / 8
    assert statistics.entropy == pytest.approx(-(share * np.log(share)).sum() / np.log(4))
    assert statistics.distinct == 4


def test_gpt_oss_overlap_is_the_published_one(real_data):
    traces = import_traces(real_data / "traces" / "gpt-oss-20b.npz")
    statistics = routing_statistics(traces)
    assert (statistics.requests, statistics.tokens) == (393, 132_660)
    assert statistics.overlap == pytest.approx(0.434, abs=0.01)
    assert statistics.overlap_shuffled == pytest.approx(0.304, abs=0.01)
