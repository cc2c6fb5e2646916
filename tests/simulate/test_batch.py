"""Protects batches: what each event needs, when requests begin, what counts, and whose forecasts are averaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_samples import EXPERTS, LAYERS, Noise, traces

from seqmoe.simulate.batch import batches
from seqmoe.simulate.foresight import foresight_of, tasks_of
from seqmoe.simulate.replay import ReplayOptions, replay_traces
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING, RequestTrace


def request(experts, prefill=0):
    """One layer."""
    steps = len(experts)
    phase = (np.arange(steps) >= prefill).astype(np.uint8)
    return RequestTrace(np.array(experts, dtype=np.int16)[:, None], phase, prompt_length=prefill)


def test_an_event_needs_the_union_and_decoding_begins_together():
    long, short = request([[0, 1], [1, 2], [2, 3], [0, 3]], prefill=2), request([[4, 5], [0, 2], [2, 5]], prefill=1)
    (batch,) = batches((long, short), 6, size=2)
    assert batch.offset == (0, 1) and batch.tokens == 4
    events = batch.events()
    needed = [events.expert[a:b].tolist() for a, b in zip(events.start[:-1], events.start[1:], strict=True)]
    assert needed == [[0, 1], [1, 2, 4, 5], [0, 2, 3], [0, 2, 3, 5]]
    assert batch.counted.tolist() == [False, False, True, True]
    assert batch.decoded.tolist() == [-2, -1, 0, 1] and batch.alive().tolist() == [1, 2, 2, 2]


def test_a_stagger_lets_each_request_follow_the_one_before():
    first, second = request([[0, 1], [1, 2], [2, 3]]), request([[4, 5], [0, 5], [1, 5]])
    (batch,) = batches((first, second), 6, size=2, stagger=2, warm_up=1)
    assert batch.offset == (0, 2) and batch.alive().tolist() == [1, 1, 2, 1, 1]
    assert batch.counted.tolist() == [False, True, True, True, True] and batch.tokens == 4


def test_the_last_batch_may_be_smaller_and_missing_layers_are_no_events():
    gap = request([[0, 1], [MISSING, MISSING], [2, 3]])
    found = list(batches((gap, gap, gap), 6, size=2))
    assert [len(batch.requests) for batch in found] == [2, 1]
    for batch in found:
        assert batch.events().step.tolist() == [0, 2]


def test_forecasts_are_the_mean_over_the_requests_that_run():
    tiny = traces(count=2)
    (batch,) = batches(tiny.requests, EXPERTS, size=2)
    found = foresight_of(batch, Noise(), tiny)
    each = [Noise().forecast_sequence(np.zeros((len(r.experts), LAYERS, EXPERTS)), 8)[1] for r in tiny.requests]
    steps = len(each[0])
    assert found.probability[:steps] == pytest.approx((each[0] + each[1][:steps]) / 2, abs=1e-6)
    assert found.probability[steps:] == pytest.approx(each[1][steps:], abs=1e-6)
    assert (found.before[0] == 0).all() and (found.before[1:] == found.probability[:-1]).all()


def test_tasks_are_the_likeliest_k_and_three_of_each_layer():
    tiny = traces(count=1)
    (batch,) = batches(tiny.requests, EXPERTS)
    found = foresight_of(batch, Noise(), tiny)
    expert, confidence = tasks_of(found, tiny.top_k)
    assert expert.shape == (batch.steps, LAYERS, 5)
    assert (np.diff(confidence, axis=-1) <= 0).all()
    best = np.argsort(-found.probability[:, 0], axis=-1)[..., :5]
    assert (expert == best).all()


def test_a_batch_of_the_same_request_twice_hits_as_one_alone():
    tiny = traces(count=1)
    twice = traces(count=1)
    doubled = type(twice)(**{name: getattr(twice, name) for name in ("model", "layers", "experts", "top_k")},
                          requests=twice.requests * 2)  # fmt: skip
    (alone,) = replay_traces(tiny, ["lru"], [0.4])
    (both,) = replay_traces(doubled, ["lru"], [0.4], ReplayOptions(batch=2))
    assert both.batches == alone.batches and both.tokens == 2 * alone.tokens
    assert both.loads_per_token == alone.loads_per_token / 2


def test_a_pool_without_room_for_a_batch_is_refused():
    with pytest.raises(InputError, match=r"--residency 0.25: 4 slots, but a batch of 3 needs up to . experts"):
        replay_traces(traces(), ["lru"], [0.25], ReplayOptions(batch=3))


def test_a_request_without_steps_is_left_out():
    two = traces(count=2)
    empty = replace(two.requests[0], experts=two.requests[0].experts[:0], phase=two.requests[0].phase[:0])
    assert [len(b.requests) for b in batches((empty, *two.requests, empty), two.experts, size=2)] == [2]
    with_it = replace(two, requests=(empty, *two.requests))
    assert replay_traces(with_it, ["lru"], [0.5]) == replay_traces(two, ["lru"], [0.5])
