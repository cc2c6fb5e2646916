"""Protects the replay: its counts equal a brute force's and the event loop's, for every policy under both contracts."""

from __future__ import annotations

import signal
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import replay as twin

from seqmoe.core.simulate import POLICIES, EventLoop, Replay, replay

LAYERS, EXPERTS = 3, 6
# Router order matters only under the sequential contract.
event = st.tuples(st.integers(0, LAYERS - 1), st.lists(st.integers(0, EXPERTS - 1), max_size=4, unique=True))
traces = st.lists(event, max_size=30)


def arrays_of(events):
    return (
        np.array([layer for layer, _ in events], dtype=np.int32),
        np.cumsum([0] + [len(experts) for _, experts in events]),
        np.array([expert for _, experts in events for expert in experts], dtype=np.int32),
    )


def run(events, slots, count_from, policy, sequential=False):
    return astuple(replay(LAYERS, EXPERTS, slots, *arrays_of(events), count_from, policy, sequential))


def keys_of(events):
    return [{layer * EXPERTS + expert for expert in experts} for layer, experts in events]


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(events=traces, slots=st.integers(4, 12), data=st.data())
def test_event_contract_equals_brute_force(policy, events, slots, data):
    count_from = data.draw(st.integers(0, len(events)))
    assert run(events, slots, count_from, policy) == twin.replay(keys_of(events), slots, count_from, policy)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(events=traces, slots=st.integers(1, 12), data=st.data())
def test_sequential_contract_equals_brute_force(policy, events, slots, data):
    count_from = data.draw(st.integers(0, len(events)))
    singles = [{layer * EXPERTS + expert} for layer, experts in events for expert in experts]
    first = sum(len(experts) for _, experts in events[:count_from])
    assert run(events, slots, count_from, policy, sequential=True) == twin.replay(singles, slots, first, policy)


def score_after(policy, accesses):
    """``accesses`` of (event, key). What the last event that needed the expert leaves as its score."""
    scores = np.zeros(len(accesses))
    for place, (event, key) in enumerate(accesses):
        uses = sum(other == key for _, other in accesses[: place + 1])
        upcoming = (later for later, other in accesses[place + 1 :] if other == key)
        scores[place] = {"lru": event, "lfu": uses * 1000 + event, "belady": -next(upcoming, 10**6)}[policy]
    return scores


@pytest.mark.parametrize("sequential", [False, True], ids=["event", "sequential"])
@pytest.mark.parametrize("policy", ["lru", "lfu", "belady"])
@settings(deadline=None)
@given(events=traces, slots=st.integers(4, 12), data=st.data())
def test_the_index_equals_the_loop_over_scores(policy, sequential, events, slots, data):
    count_from = data.draw(st.integers(0, len(events)))
    keys = [(event, layer * EXPERTS + expert) for event, (layer, experts) in enumerate(events) for expert in experts]
    if sequential:
        keys = [(place, key) for place, (_, key) in enumerate(keys)]
    scores, sizes = score_after(policy, keys), [len(experts) for _, experts in events]
    loop, place = EventLoop(LAYERS, EXPERTS, slots, sequential=sequential), 0
    for step, ((layer, experts), size) in enumerate(zip(events, sizes, strict=True)):
        arrays = np.array([step]), np.array([layer]), np.array([0, size]), np.array(experts)
        loop.feed(*arrays, count=step >= count_from, accessed=scores[place : place + size])
        place += size
    counts = loop.counts()
    found = counts.hits, counts.needed, counts.evictions, counts.loads
    assert found == run(events, slots, count_from, policy, sequential)


@pytest.mark.parametrize("policy", ["lru", "lfu", "lfu_resident"])
@settings(deadline=None, max_examples=30)
@given(events=traces, cut=st.integers(0, 30), slots=st.integers(4, 12))
def test_blocks_are_the_same_as_the_whole(policy, events, cut, slots):
    parts = Replay(LAYERS, EXPERTS, slots, policy)
    for block in (events[:cut], events[cut:]):
        parts.feed(*arrays_of(block))
    assert astuple(parts.counts()) == run(events, slots, 0, policy)


def test_belady_takes_one_block():
    whole = Replay(1, 4, 2, "belady")
    whole.feed(*arrays_of([(0, [1])]))
    with pytest.raises(ValueError, match="whole trace"):
        whole.feed(*arrays_of([(0, [1])]))


@settings(deadline=None)
@given(events=traces, slots=st.integers(1, 12))
def test_nothing_beats_belady_one_access_at_a_time(events, slots):
    hits = {policy: run(events, slots, 0, policy, sequential=True)[0] for policy in POLICIES}
    assert hits["belady"] >= max(hits.values())


def test_a_known_sequence():
    # 0 1 2 0 3 1 0 in two slots, by hand; Belady: 2 replaces 1, 3 replaces 2, 1 replaces 3, and 0 stays.
    events = [(0, [expert]) for expert in (0, 1, 2, 0, 3, 1, 0)]
    assert run(events, 2, 0, "lru") == (0, 7, 5, 7)
    assert run(events, 2, 0, "belady") == (2, 7, 3, 5)


def test_a_long_replay_can_be_interrupted():
    def interrupt(*_):
        raise KeyboardInterrupt

    count = 5_000_000
    arguments = (
        np.zeros(count, np.int32),
        np.arange(count + 1),
        np.random.default_rng(0).integers(0, 64, count, np.int32),
    )
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.02)  # a tenth of what the replay takes on a quick machine
    try:
        with pytest.raises(KeyboardInterrupt):
            replay(1, 64, 8, *arguments, 0, "lru")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"policy": "fifo"}, ValueError),
        ({"slots": 0}, ValueError),
        ({"slots": 1}, RuntimeError),
        ({"event_layer": [0, 3]}, ValueError),
        ({"event_layer": [0]}, ValueError),
        ({"event_start": [0, 3, 2]}, ValueError),
        ({"event_start": [0, 2, 5]}, ValueError),
        ({"expert": [0, 1, 6, 3]}, ValueError),
        ({"expert": [0, 1, 2, 2]}, ValueError),
        ({"count_from_event": 3}, ValueError),
        ({"count_from_event": -1}, ValueError),
    ],
)
def test_wrong_arguments_are_refused(change, error):
    good = {"event_layer": [0, 1], "event_start": [0, 2, 4], "expert": [0, 1, 2, 3], "slots": 4}
    arguments = good | {"count_from_event": 0, "policy": "lru"} | change
    for name, dtype in (("event_layer", np.int32), ("event_start", np.int64), ("expert", np.int32)):
        arguments[name] = np.array(arguments[name], dtype=dtype)
    with pytest.raises(error):
        replay(layers=LAYERS, experts=EXPERTS, **arguments)
