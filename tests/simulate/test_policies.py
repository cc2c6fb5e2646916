"""Protects the policies: each against its definition, decision by decision; forecasts that come true; one's own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from replay_samples import EXPERTS, LAYERS, Knowing, Noise, traces
from slow_replay import DEFINITIONS, hits

from seqmoe.simulate.policies import POLICIES, Policy, Routing, Scores, policy_of
from seqmoe.simulate.policies.learned import FEATURES
from seqmoe.simulate.replay import ReplayOptions, fitted_weights, replay_traces
from seqmoe.spec.errors import InputError


@pytest.mark.parametrize("slots", [2, 5, 9, 14])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_scores_evict_as_the_definition_says(name, slots) -> None:
    tiny = traces(seed=slots)
    (row,) = replay_traces(tiny, [name], [slots / (LAYERS * EXPERTS)], predictor=Noise())
    assert row.slots == slots
    assert list(row.batches) == [hits(request, Noise(), name, slots) for request in tiny.requests]


def test_every_policy_of_the_registry_runs_says_what_it_is_and_is_no_better_than_belady() -> None:
    rows = replay_traces(traces(), list(POLICIES), [0.3, 0.6], predictor=Noise(), fitted_on=traces(1))
    bound = {row.residency: row.hit_rate for row in rows if row.policy == "belady"}
    assert {row.policy for row in rows} == set(POLICIES)
    for row in rows:
        assert row.hit_rate <= bound[row.residency] + 1e-12
    for policy in POLICIES.values():
        assert policy.about and policy.score.__doc__ and policy.title


@pytest.mark.parametrize("residency", [0.2, 0.4, 0.6])
def test_forecasts_that_come_true_make_the_forecast_policies_oracles(residency) -> None:
    tiny = traces(seed=3, count=6)
    names = ["lru", "belady_8", "belady_f8", "forecast_tail", "seqmoe_next", "belady"]
    rate = {row.policy: row.hit_rate for row in replay_traces(tiny, names, [residency], predictor=Knowing())}
    # Ranges are told late of their first layers, so that a forecast falls a little short of the oracle.
    for name in ("belady_f8", "forecast_tail", "seqmoe_next"):
        assert rate["lru"] < rate[name] <= rate["belady"] + 1e-12
    assert rate["belady_f8"] == pytest.approx(rate["belady_8"], abs=0.04)


def test_lru_and_lfu_are_those_of_the_index() -> None:
    from seqmoe.core.simulate import replay
    from seqmoe.simulate.batch import events_of

    tiny = traces(seed=5, steps=200)
    for name, contract in itertools.product(("lru", "lfu", "belady"), ("event", "sequential")):
        (row,) = replay_traces(tiny, [name], [0.4], ReplayOptions(contract=contract))
        expected = 0
        for request in tiny.requests:
            events = events_of(request)
            first = int((events.step < request.prompt_length).sum())
            arguments = (LAYERS, EXPERTS, row.slots, events.layer, events.start, events.expert, first, name)
            expected += replay(*arguments, sequential=contract == "sequential").hits
        assert row.hits == expected


def test_scores_by_access_are_those_of_the_arrays() -> None:
    tiny = traces(seed=6, count=4, steps=80)
    for name in ("lru", "lfu", "belady"):
        arrays = replace(POLICIES[name], name="arrays", title="Arrays")
        for batch in (1, 3):
            rows = replay_traces(tiny, [name, arrays], [0.4, 0.6], ReplayOptions(batch=batch))
            assert [row.batches for row in rows[:2]] == [row.batches for row in rows[2:]]


def test_learned_weights_use_forecasts_that_tell_and_are_none_the_worse_for_noise() -> None:
    others, tiny = traces(seed=9, count=6, steps=120), traces(seed=10, count=6, steps=60)
    rates = {}
    for predictor in (Noise(), Knowing()):
        rows = replay_traces(tiny, ["lru", "learned", "belady"], [0.4], predictor=predictor, fitted_on=others)
        rates[type(predictor)] = [row.hit_rate for row in rows]
    (lru, noise, _), (_, knowing, belady) = rates[Noise], rates[Knowing]
    assert lru < noise < knowing <= belady
    weights = fitted_weights(others, Noise())
    assert weights.shape == (len(FEATURES),) and (weights == fitted_weights(others, Noise())).all()


def test_a_policy_of_ones_own_has_a_name_of_its_own() -> None:
    def by_id(routing):
        return Scores(used=np.zeros(routing.active.shape, dtype=np.float32))

    for policies in ([Policy("lru", "Mine", by_id)], [Policy("mine", "One", by_id), Policy("mine", "Two", by_id)]):
        with pytest.raises(InputError, match="give yours a name of its own"):
            replay_traces(traces(), policies, [0.4])


def test_links_of_one_ratio_are_one() -> None:
    rows = replay_traces(traces(), ["lru+matroid"], [0.4], ReplayOptions((0.9, 0.9)), predictor=Noise())
    assert len(rows) == 1


def test_a_policy_of_ones_own_is_a_plain_function() -> None:
    def first_in_first_out(routing: Routing) -> Scores:
        """The expert whose first use is the oldest goes first."""
        began = np.where(np.maximum.accumulate(routing.active, axis=0), 0.0, np.inf)
        first = np.argmax(routing.active, axis=0)
        return Scores(used=np.where(np.isinf(began), 0.0, first[None]))

    mine = Policy("fifo", "FIFO", first_in_first_out)
    rows = replay_traces(traces(), [mine, "lru"], [0.4])
    assert [row.policy for row in rows] == ["fifo", "lru"]
    assert 0 < rows[0].hit_rate != rows[1].hit_rate


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (lambda r: Scores(used=np.zeros((1, 2, 3))), "policy 'mine': used .1, 2, 3., expected"),
        (lambda r: Scores(used=np.full(r.active.shape, np.nan)), "policy 'mine': used holds NaN"),
    ],
)
def test_what_a_policy_of_ones_own_answers_wrongly_is_told(scores, message) -> None:
    with pytest.raises(ValueError, match=message):
        replay_traces(traces(), [Policy("mine", "Mine", scores)], [0.4])


def test_any_policy_takes_any_order_of_prefetching() -> None:
    assert policy_of("lru+edf").prefetch == "edf" and policy_of("lru").prefetch is None
    assert policy_of("seqmoe+promoe").score is POLICIES["seqmoe"].score
    with pytest.raises(InputError, match=r"'lru\+matriod'.*did you mean 'matroid'"):
        policy_of("lru+matriod")
    with pytest.raises(InputError, match="did you mean 'belady_f8'"):
        policy_of("belady_f9")
