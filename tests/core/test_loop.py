"""Protects the event loop: after every event its pool and counts equal the plain-Python twin's, and it never hangs."""

from __future__ import annotations

import signal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_samples import BANDS, EXPERTS, LAYERS, MOST, TOTALS, places, pool_of, rules, totals, traces, twin_event
from twins.loop import COMPUTE, FETCH, Loop

from seqmoe.core.loop import PLACED, EventLoop


@pytest.mark.parametrize("sequential", [False, True], ids=["event", "sequential"])
@settings(deadline=None, max_examples=300)
@given(trace=traces(), rule=st.none() | rules(), data=st.data())
def test_every_event_equals_the_twin(sequential, trace, rule, data):
    slots = data.draw(st.integers(1 if sequential else MOST, LAYERS * EXPERTS))
    counted_from = data.draw(st.sampled_from([0, 0, 1, 4]))
    loop = EventLoop(LAYERS, EXPERTS, slots, rule, sequential, BANDS)
    twin = Loop(LAYERS, EXPERTS, slots, rule, sequential, BANDS)
    for index, (step, _, experts) in enumerate(trace.events):
        demand = [1 + (step + expert) % 3 for expert in experts]
        block = trace.block(index, index + 1) | {"demand": np.array(demand, dtype=np.int32)}
        if rule is None:
            block |= {"task_expert": None, "task_confidence": None}
        loop.feed(**block, count=step >= counted_from)
        twin_event(twin, trace, index, count=step >= counted_from, demand=demand)
        assert pool_of(loop) == twin.state
        assert totals(loop) == {name: twin.counts[name] for name in TOTALS}
        assert places(loop) == {key: count for key, count in twin.counts.items() if isinstance(key, tuple)}


@settings(deadline=None, max_examples=150)
@given(trace=traces(), rule=rules(), cuts=st.lists(st.integers(0, 30), max_size=4), slots=st.integers(MOST, 12))
def test_blocks_are_the_same_as_the_whole(trace, rule, cuts, slots):
    whole = EventLoop(LAYERS, EXPERTS, slots, rule, bands=(1, 4))
    whole.feed(**trace.block(0, None))
    parts = EventLoop(LAYERS, EXPERTS, slots, rule, bands=(1, 4))
    edges = sorted({0, *(cut for cut in cuts if cut < len(trace.events)), len(trace.events)})
    for first, last in pairwise(edges):
        parts.feed(**trace.block(first, last))
    assert totals(parts) == totals(whole)
    assert pool_of(parts) == pool_of(whole)
    for name in ("layers", "bands"):
        assert np.array_equal(getattr(parts.counts(), name), getattr(whole.counts(), name))


@settings(deadline=None, max_examples=150)
@given(trace=traces(most_steps=30), rule=rules(), slots=st.integers(MOST, 12), sequential=st.booleans())
def test_nothing_is_lost(trace, rule, slots, sequential):
    loop = EventLoop(LAYERS, EXPERTS, slots, rule, sequential)
    before = {}
    for index, (_, layer, experts) in enumerate(trace.events):
        earlier = loop.counts()
        loop.feed(**trace.block(index, index + 1))
        pool, counts = pool_of(loop), loop.counts()
        if not sequential:
            assert {(layer, expert) for expert in experts} <= pool.keys()
        # FETCH and COMPUTE are never evicted: such a slot is lost only by a drop, or by giving up what landed unused;
        # or else, one access at a time, it was used by one and evicted by a later one of the same layer.
        gone = [expert for expert, state in before.items() if state in (FETCH, COMPUTE) and expert not in pool]
        assert len(gone) <= counts.dropped - earlier.dropped + counts.wasted - earlier.wasted or sequential
        before = pool
        assert counts.needed == counts.hits + counts.misses
        assert counts.used + counts.wasted <= counts.landed <= counts.sent <= counts.created - counts.dropped
        assert counts.landed >= counts.sent - list(pool.values()).count(FETCH)
        held = sum(state == COMPUTE for state in pool.values())
        assert held <= counts.landed - counts.used - counts.wasted  # all others were released


@settings(deadline=None, max_examples=150)
@given(trace=traces(most_steps=30), rule=rules(), slots=st.integers(MOST, 12), warm_up=st.integers(0, 40))
def test_a_prefetch_counts_where_it_was_sent(trace, rule, slots, warm_up):
    loop, all_counted = (EventLoop(LAYERS, EXPERTS, slots, rule) for _ in range(2))
    cut = min(warm_up, len(trace.events))
    if cut:
        loop.feed(**trace.block(0, cut) | {"count": False})
        all_counted.feed(**trace.block(0, cut))
    before = all_counted.counts()
    for part in (loop, all_counted):
        if cut < len(trace.events):
            part.feed(**trace.block(cut, len(trace.events)))
    counts, both = loop.counts(), all_counted.counts()
    assert counts.used + counts.wasted <= counts.landed <= counts.sent == both.sent - before.sent
    assert counts.dropped <= counts.created == both.created - before.created
    # What was created before is dropped there.
    assert both.dropped - before.dropped <= counts.dropped + before.created - before.dropped
    assert (counts.hits, counts.loads) == (both.hits - before.hits, both.loads - before.loads)
    assert counts.used <= both.used and pool_of(loop) == pool_of(all_counted)


def test_layers_and_bands_add_up():
    rng = np.random.default_rng(0)
    steps = 40
    expert = np.argsort(rng.random((steps, LAYERS, EXPERTS)), axis=-1)[..., :MOST]
    loop = EventLoop(LAYERS, EXPERTS, 6, bands=(0, 10, 100))
    arguments = (
        np.repeat(np.arange(steps), LAYERS),
        np.tile(np.arange(LAYERS), steps),
        np.arange(steps * LAYERS + 1) * 2,
    )
    loop.feed(*arguments, expert.ravel(), used=rng.random((steps, LAYERS, EXPERTS)))
    counts, needed = loop.counts(), PLACED.index("needed")
    assert counts.layers[:, needed].tolist() == [steps * MOST] * LAYERS
    assert counts.bands[:, needed].tolist() == [10 * LAYERS * MOST, 30 * LAYERS * MOST, 0]


@settings(deadline=None, max_examples=150)
@given(trace=traces(most_steps=30), rule=rules(), slots=st.integers(MOST, 12), cut=st.integers(0, 20))
def test_the_sums_over_layers_and_over_bands_are_the_totals(trace, rule, slots, cut):
    loop, cut = EventLoop(LAYERS, EXPERTS, slots, rule, bands=BANDS), min(cut, len(trace.events))
    for first, last, count in ((0, cut, False), (cut, len(trace.events), True)):
        if first < last:
            loop.feed(**trace.block(first, last), count=count)
    counts = loop.counts()
    totals = [getattr(counts, name) for name in PLACED]
    assert counts.layers.sum(0).tolist() == counts.bands.sum(0).tolist() == totals
    for place in (*counts.layers, *counts.bands):
        of = dict(zip(PLACED, place.tolist(), strict=True))
        assert of["hits"] + of["late"] + of["loads"] == of["needed"] and of["used"] + of["wasted"] <= of["sent"]


def test_scores_begun_anew_in_the_same_order_change_nothing():
    rng = np.random.default_rng(3)
    steps, events = 60, LAYERS * 60
    expert = np.argsort(rng.random((events, EXPERTS)), axis=-1)[:, :MOST].ravel()
    step, layer = np.repeat(np.arange(steps), LAYERS), np.tile(np.arange(LAYERS), steps)
    time, half = np.repeat(np.arange(events), MOST) + 1, events // 2
    whole, parts = (EventLoop(LAYERS, EXPERTS, 6) for _ in range(2))
    whole.feed(step, layer, np.arange(events + 1) * MOST, expert, accessed=time)
    parts.feed(
        step[:half], layer[:half], np.arange(half + 1) * MOST, expert[: half * MOST], accessed=time[: half * MOST]
    )
    last = np.full((LAYERS, EXPERTS), -1e9)
    last[np.repeat(layer, MOST)[: half * MOST], expert[: half * MOST]] = time[: half * MOST] - 1e6
    parts.set_scores(last)
    rest = slice(half * MOST, None)
    parts.feed(step[half:], layer[half:], np.arange(half + 1) * MOST, expert[rest], accessed=time[rest] - 1e6)
    assert totals(parts) == totals(whole) and pool_of(parts) == pool_of(whole)
    with pytest.raises(ValueError, match="scores"):
        parts.set_scores(last[1:])


@settings(deadline=None, max_examples=50)
@given(trace=traces(), rule=rules(), other=traces())
def test_a_new_request_begins_cold(trace, rule, other):
    fresh, reused = (EventLoop(LAYERS, EXPERTS, 6, rule) for _ in range(2))
    reused.feed(**other.block(0, None), count=False)
    assert not any(totals(reused).values())
    reused.forget()
    for loop in (fresh, reused):
        loop.feed(**trace.block(0, None))
    assert totals(fresh) == totals(reused)


def test_a_long_loop_can_be_interrupted():
    def interrupt(*_):
        raise KeyboardInterrupt

    count = 3_000_000
    before = signal.signal(signal.SIGALRM, interrupt)
    arguments = np.arange(count), np.zeros(count), np.arange(count + 1), np.zeros(count)
    loop = EventLoop(1, 1, 4096)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                loop.feed(*arguments)
                loop.forget()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
