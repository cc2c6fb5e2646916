"""Protects how misses are shared between CPU and link, and what the shares cost on a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.miss_prices import emulated_pace, miss_prices
from seqmoe.spec.pace import MissPrices
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)
PRICES = MissPrices(link=4.0, contended=6.0, cpu=3.0, hand_over=2.0, wait=0.5, hit=0.5)


def test_the_split_is_the_cheapest_of_all():
    assert [PRICES.cost(2, computed, 2) for computed in range(3)] == [8.5, 6.5, 7.0]
    assert [PRICES.cheapest(misses, 2) for misses in range(3)] == [0, 1, 1]
    assert replace(PRICES, cpu=50.0).cheapest(3, 2) == 0
    assert PRICES.cost(3, 3, 200) == 0, "the device's own work hides the CPU's"
    assert PRICES.on_cpu(0, 0) == 0


def test_an_expert_that_costs_the_same_either_way_is_loaded():
    even = MissPrices(link=1.0, contended=1.0, cpu=1.0, hand_over=0.0, hit=0.0)
    assert even.cheapest(1, 0) == 0


def test_prices_are_of_what_link_and_cpu_leave_each_other():
    hardware = load_hardware(HOME, "rtx4090")
    found = miss_prices(hardware, 4_718_592, kernel=0.5)
    assert found.link == pytest.approx(4_718_592 / 25e9)
    assert found.contended == pytest.approx(4_718_592 / 15e9)
    assert found.cpu == pytest.approx(4_718_592 / ((96 - 15) * 1e9 * 0.5))
    assert found.hit == pytest.approx(4_718_592 / 907e9)


def test_a_profile_without_rates_has_no_prices():
    hardware = replace(load_hardware(HOME, "rtx4090"), rates=None)
    with pytest.raises(InputError, match=r"rtx4090.*\[rates\]"):
        miss_prices(hardware, 1, 1.0)


def test_an_emulated_pace_has_them():
    pace = emulated_pace(HOME, "rtx4090")
    assert pace.misses is not None and pace.misses.link == pytest.approx(pace.expert_seconds)


@pytest.mark.parametrize("field", ["link", "cpu", "hit"])
def test_negative_prices_are_refused(field):
    with pytest.raises(ValueError, match="negative"):
        replace(PRICES, **{field: -1.0})
