"""Protects hit rates: the contract's counting by hand, and the published rates of a real trace."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace

import numpy as np
import pytest
from replay_samples import Knowing, Noise, traces

from seqmoe.simulate.batch import events_of
from seqmoe.simulate.policies import policy_of
from seqmoe.simulate.replay import ReplayOptions, ReplayRow, replay_traces
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


@pytest.mark.parametrize("link", [0.5, 1.0, float("inf")])
def test_prefetching_moves_what_the_link_allows_and_every_expert_is_accounted_for(link):
    tiny = traces(seed=4, count=4)
    options = ReplayOptions(links=(link,), warm_up=3)
    rows = replay_traces(tiny, ["seqmoe", "seqmoe_creation", "lru+edf", "lru"], [0.8], options, predictor=Knowing())
    for row in rows[:3]:
        assert row.hits + row.late + row.loads == row.accesses
        assert 0 < row.sent <= (link + 1e-9) * row.tokens * tiny.layers + len(tiny.requests)
        assert row.link == (None if link == float("inf") else link) and row.slots == 14
        assert row.bytes.on_demand == pytest.approx(row.loads * 1000 / row.tokens)
        assert row.bytes_per_token == pytest.approx(row.bytes.on_demand + row.bytes.prefetched)
    assert rows[3].link == rows[3].sent == rows[3].late == 0


def test_what_is_not_likely_is_not_prefetched_where_the_policy_says_so():
    # Of the five tasks of a layer only two come true: in a small pool the others push out what is needed.
    careful = replace(policy_of("seqmoe_next+matroid"), name="careful", least_confidence=0.5)
    unlimited = ReplayOptions(links=(float("inf"),))
    tiny = traces(seed=4, count=4)
    every, few = replay_traces(tiny, ["seqmoe_next+matroid", careful], [0.45], unlimited, predictor=Knowing())
    assert every.hit_rate < few.hit_rate and few.sent < every.sent


def test_as_printed_cache_score_gives_away_what_is_needed_next_even_if_every_forecast_comes_true():
    unlimited = ReplayOptions(links=(float("inf"),))
    names = ["seqmoe", "seqmoe_next+matroid", "lru"]
    printed, with_next, lru = replay_traces(traces(seed=4, count=4), names, [0.8], unlimited, predictor=Knowing())
    assert printed.hit_rate < lru.hit_rate < with_next.hit_rate == 1


def test_several_links_give_the_rows_of_each_alone():
    tiny, names = traces(seed=4), ["lru", "seqmoe"]
    both = replay_traces(tiny, names, [0.4], ReplayOptions(links=(0.5, 2.0)), predictor=Noise())
    alone = [replay_traces(tiny, names, [0.4], ReplayOptions(links=(link,)), predictor=Noise()) for link in (0.5, 2.0)]
    assert both == [alone[0][0], alone[0][1], alone[1][1]]


def test_layers_bands_and_batches_add_up_to_the_rate():
    tiny = traces(seed=6, count=5, steps=90)
    (row,) = replay_traces(tiny, ["lru"], [0.4])
    hits, needed = np.array(row.batches).sum(0)
    assert (row.hits, row.accesses) == (hits, needed) and len(row.batches) == 5
    assert row.hit_rate == pytest.approx(np.mean(row.layers))  # every layer needs as many
    assert [first for first, _ in row.bands] == [0, 64]
    low, high = row.interval
    assert low < row.hit_rate < high and row.distinct == 2
    assert ReplayRow.from_dict(json.loads(json.dumps(row.as_dict()))) == row
    (few,) = replay_traces(traces(seed=6, count=4), ["lru"], [0.4])
    assert few.interval is None and len(few.batches) == 4


@pytest.mark.parametrize("options", [{}, {"batch": 2}, {"batch": 2, "stagger": 3}])
def test_what_moved_adds_up_over_layers_and_over_bands(options):
    tiny = traces(seed=6, count=5, steps=90)
    replayed = ReplayOptions(links=(0.7,), warm_up=3, **options)
    for row in replay_traces(tiny, ["lru", "seqmoe", "seqmoe_creation"], [0.6], replayed, predictor=Noise()):
        for places in (row.by_layer, row.by_band):
            sums = {name: sum(getattr(places, name)) for name in ("late", "loads", "sent")}
            assert sums == {"late": row.late, "loads": row.loads, "sent": row.sent}
            wasted = sum(places.wasted) * 1000 / row.tokens
            assert wasted == pytest.approx(row.bytes.wasted) and (wasted > 0) == (row.link != 0)
        assert sum(row.by_band.tokens) == row.tokens and set(row.by_layer.tokens) == {row.tokens}
        detail = json.loads(json.dumps(row.detail()))
        for name in ("on_demand", "prefetched", "wasted", "late"):
            assert sum(place[name] for place in detail["bytes_by_layer"]) == pytest.approx(detail["bytes"][name])
            shares = zip(detail["bytes_by_band"], row.by_band.tokens, strict=True)
            assert sum(place[name] * tokens for place, tokens in shares) / row.tokens == pytest.approx(
                detail["bytes"][name]
            )


def test_an_expert_that_two_requests_need_counts_twice_by_assignment():
    # Top-2 of 4, three slots. Step 0: {0,1} and {0,2} load 0, 1, 2. Step 1: {0,1} and {0,3}: 0 and 1 hit, 3 misses.
    # Distinct: 2 of 6 hit. By assignment 0 counts for both requests: 3 of 8.
    first, second = (_traces([[[0, 1]], [[0, other]]], [DECODE, DECODE]).requests[0] for other in (1, 3))
    second = replace(second, experts=np.array([[[0, 2]], [[0, 3]]], dtype=np.int16))
    both = TraceSet("t", 1, 4, 2, (first, second))
    (row,) = replay_traces(both, ["lru"], [0.75], ReplayOptions(batch=2))
    assert (row.hits, row.accesses, row.assignment_rate) == (2, 6, 3 / 8)
    assert all(row.assignment_rate == row.hit_rate for row in replay_traces(both, ["lru", "belady"], [0.75]))


def test_records_without_what_moved_are_still_read():
    (row,) = replay_traces(traces(count=5), ["lru"], [0.4])
    later = ("assignment_rate", "expert_bytes", "by_layer", "by_band")
    old = {name: value for name, value in row.as_dict().items() if name not in later}
    read = ReplayRow.from_dict(json.loads(json.dumps(old)))
    assert (read.hits, read.interval, read.by_layer, read.detail()["bytes_by_layer"]) == (
        row.hits,
        row.interval,
        None,
        None,
    )
    one = old | {"batches": old["batches"][:1], "interval": (0.5, 0.5)}
    assert ReplayRow.from_dict(one).interval is None


def test_requests_are_read_one_by_one():
    class Reading:
        """Requests that know how many of them are held at a time."""

        def __init__(self, requests):
            self.requests, self.held, self.most = requests, weakref.WeakSet(), 0

        def __len__(self):
            return len(self.requests)

        def __getitem__(self, index):
            if index >= len(self):
                raise IndexError
            request = self.requests[index]
            copy = Held(request.experts.copy(), request.phase, prompt_length=request.prompt_length)
            self.held.add(copy)
            self.most = max(self.most, len(self.held))
            return copy

    tiny = traces(count=8)
    reading = Reading(tiny.requests)
    rows = replay_traces(replace(tiny, requests=reading), ["lru", "belady"], [0.4])
    assert rows == replay_traces(tiny, ["lru", "belady"], [0.4])
    assert reading.most <= 2


class Held(RequestTrace):
    """A request that can be weakly referred to."""

    __slots__ = ("__weakref__",)


def test_warm_up_steps_are_run_and_not_counted():
    tiny = traces(seed=7, count=1, steps=20, prefill=0)
    (whole,) = replay_traces(tiny, ["lru"], [0.4])
    (late,) = replay_traces(tiny, ["lru"], [0.4], ReplayOptions(warm_up=8))
    assert (late.tokens, late.accesses) == (12, 12 * 3 * 2) and late.hits < whole.hits
    with pytest.raises(InputError, match="no decode steps to count after a warm-up of 50"):
        replay_traces(tiny, ["lru"], [0.4], ReplayOptions(warm_up=50))


def test_the_bound_is_strict_only_where_everything_counts():
    # One request whose misses LFU has more of, but the larger part of them before the first counted step.
    tiny = traces(seed=15, count=1, steps=14, prefill=0)
    lfu, bound = replay_traces(tiny, ["lfu", "belady"], [0.4], ReplayOptions(warm_up=10))
    assert lfu.hits > bound.hits
    lfu, bound = replay_traces(tiny, ["lfu", "belady"], [0.4])
    assert lfu.hits < bound.hits


@pytest.mark.parametrize(
    ("policies", "options", "changes", "message"),
    [
        (["seqmoe"], {}, {}, "'seqmoe' works on forecasts.*--predictor"),
        (["lru+matroid"], {}, {}, "works on forecasts"),
        (["learned"], {}, {"predictor": Noise()}, "'learned' is fitted to other traces.*--fit"),
        (["popularity"], {}, {}, "--fit"),
        (["prefill_hot"], {}, {"prefill": 0}, "fitted to the prefill.*--warm-up 16"),
        (["lru"], {"links": (-1.0,)}, {}, "--link-experts-per-layer -1"),
        (["lru"], {"batch": 0}, {}, "--batch 0: must be at least 1"),
        (["lru"], {"batch": 2, "contract": "sequential"}, {}, "leave --batch at 1"),
    ],
)
def test_what_does_not_fit_together_is_told_before_anything_runs(policies, options, changes, message):
    tiny = traces(prefill=changes.pop("prefill", 4))
    with pytest.raises(InputError, match=message):
        replay_traces(tiny, policies, [0.5], ReplayOptions(**options), **changes)


def test_a_predictor_of_another_model_and_one_without_a_head_are_refused():
    class Other(Noise):
        layers = 4

    class Headless:
        layers, experts, ranges = Noise.layers, Noise.experts, Noise.ranges

    with pytest.raises(InputError, match="made for 4 layers of 6 experts, but the traces of tiny have 3 of 6"):
        replay_traces(traces(), ["seqmoe"], [0.5], predictor=Other())
    with pytest.raises(InputError, match="'use_head' needs a predictor that forecasts future use"):
        replay_traces(traces(), ["use_head"], [0.5], predictor=Headless())
