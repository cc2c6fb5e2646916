"""Protects hit rates: the contract's counting by hand, and the published rates of a real trace."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.simulate.batch import events_of
from seqmoe.simulate.replay import ReplayOptions, replay_traces
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet
from seqmoe.traces.importers import import_traces

SEQUENTIAL = ReplayOptions(contract="sequential")


def _traces(experts, phase, count=4):
    request = RequestTrace(np.array(experts, dtype=np.int16), np.array(phase, dtype=np.uint8))
    return TraceSet("t", request.experts.shape[1], count, request.experts.shape[2], (request,))


# One layer, top-2 of 4, pool of 3 slots (residency 0.75). Prefill {0,1}; decode {1,2}, {3,0}, {0,1}.
SMALL = _traces([[[0, 1]], [[1, 2]], [[3, 0]], [[0, 1]]], [PREFILL, DECODE, DECODE, DECODE])


def test_event_contract_by_hand():
    # {1,2}: 1 hits, 2 joins {0,1}. {3,0}: 0 hits; 3 evicts 1, least recent of {1,2} by key. {0,1}: 0 hits, 1 misses.
    (row,) = replay_traces(SMALL, ["lru"], [0.75])
    assert (row.hits, row.accesses, row.loads) == (3, 6, 3)
    # Belady evicts 2, which never comes back, instead of 1: one more hit, the whole gap.
    belady, lru = replay_traces(SMALL, ["belady", "lru"], [0.75])
    assert (belady.hits, belady.gap_recovered, lru.gap_recovered) == (4, 1, 0)


def test_sequential_contract_lets_an_event_evict_its_own_expert():
    # {3,0} one by one: 3 evicts 0, the least recent, so 0 misses and evicts 1; then {0,1}: 0 hits, 1 misses.
    (row,) = replay_traces(SMALL, ["lru"], [0.75], SEQUENTIAL)
    assert (row.hits, row.accesses) == (2, 6)


def test_missing_layers_are_no_events():
    events = events_of(_traces([[[0, 1], [MISSING, MISSING]], [[1, 2], [3, 0]]], [PREFILL, DECODE]).requests[0])
    assert events.layer.tolist() == [0, 0, 1]
    assert events.expert.tolist() == [0, 1, 1, 2, 3, 0]
    assert events.step.tolist() == [0, 1, 1]


def test_a_trace_without_counted_steps_is_refused():
    nothing = _traces([[[0, 1]], [[MISSING, MISSING]]], [PREFILL, DECODE])
    with pytest.raises(InputError, match="no decode step"):
        replay_traces(nothing, ["lru"], [0.75])


@pytest.mark.parametrize(
    ("policies", "residency", "contract", "message"),
    [
        (["lru2"], 0.5, "event", "did you mean 'lru'"),
        (["lru"], 1.5, "event", "must lie in"),
        (["lru"], 0.1, "event", "smallest legal residency"),
        (["lru"], 0.5, "events", "did you mean 'event'"),
    ],
)
def test_wrong_input_says_what_to_do(policies, residency, contract, message):
    with pytest.raises(InputError, match=message):
        replay_traces(SMALL, policies, [residency], ReplayOptions(contract=contract))


def test_published_rates_of_qwen3(real_data):
    traces = import_traces(real_data / "traces" / "qwen3-30b-a3b.route.csv")
    rows = replay_traces(traces, ["lru", "lfu", "belady"], [0.15, 0.25, 0.35, 0.45], SEQUENTIAL)
    rates = {policy: [row.hit_rate for row in rows if row.policy == policy] for policy in ("lru", "lfu", "belady")}
    assert rates["lru"] == pytest.approx([0.655, 0.826, 0.917, 0.958], abs=0.002)
    assert rates["belady"] == pytest.approx([0.838, 0.930, 0.965, 0.971], abs=0.002)
    assert rates["lfu"] == pytest.approx([0.633, 0.803, 0.906, 0.956], abs=0.01)
