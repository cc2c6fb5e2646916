"""Protects the table of systems: its names are those of the core and of the replay, and nonsense is refused."""

from __future__ import annotations

import pytest

from seqmoe.core.schedule import ORDERS
from seqmoe.simulate.policies import POLICIES
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import PREFETCH, SYSTEMS, SystemSpec, system


def test_orders_are_the_schedulers():
    assert ("none", *ORDERS) == PREFETCH


@pytest.mark.parametrize(
    "name",
    ["lru", "lfu", "lfu_decay", "prefill_hot", "popularity", "seqmoe_cache_only", "seqmoe_infinity", "seqmoe",
     "seqmoe_learned"],
)  # fmt: skip
def test_a_name_means_the_same_in_the_replay(name):
    spec, policy = SYSTEMS[name], POLICIES[name]
    assert spec.prefetch == (policy.prefetch or "none")
    assert policy.prefetch is None or spec.reserve == policy.reserve
    assert (spec.predictor != "none") == policy.forecasts


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retention": "lru2"}, "retention = 'lru2'.*did you mean 'lru'"),
        ({"retention": "lru", "prefetch": "matroid"}, "needs a predictor"),
        ({"retention": "learned"}, "needs a predictor"),
        ({"retention": "lru", "prefill": "ping"}, "prefill = 'ping'"),
        ({"retention": "lru", "execution": "fast"}, "execution = 'fast'"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        SystemSpec("x", "X", **fields)


def test_an_unknown_system_is_told_the_nearest():
    with pytest.raises(InputError, match="did you mean 'seqmoe'"):
        system("seqmo")
