"""Protects waits for the link's one channel, and the split of misses between CPU and link, against sums by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqmoe.simulate.timeline.cell import Simulator
from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.queue import left_of_transfer, load_stall, missing_layers, wait
from seqmoe.simulate.timeline.split import background_link, prices, shares
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.pace import MissPrices
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)
CALIBRATION = load_calibration(HOME)


def counts(**changes: float) -> StepCounts:
    return replace(StepCounts(80.0, 60.0, 20.0, 0.0, 0.0, 0.0), **changes)


def test_loads_wait_for_nothing_on_a_link_without_prefetches() -> None:
    assert load_stall(counts(), 10, 1.0, 0.3, 0.2) == pytest.approx(20 * 0.3)
    assert load_stall(counts(late=4.0), 10, 1.0, 0.3, 0.2) == pytest.approx(20 * 0.3 + 4 * 0.1)


def test_what_is_left_of_a_transfer_is_what_a_simulated_link_has_left() -> None:
    rng = np.random.default_rng(0)
    for missing, link in ((0.8, 0.9), (0.2, 0.9), (0.3, 2.3)):
        gaps = rng.geometric(missing, 200_000)
        left = np.ceil(gaps * link) - gaps * link
        assert left_of_transfer(missing, link) == pytest.approx(left.mean(), abs=0.005)
    assert left_of_transfer(1.0, 1.0) == 0


def test_the_first_load_of_a_layer_comes_after_what_is_in_flight() -> None:
    busy = counts(loads=10.0, sent=4.0)
    assert missing_layers(busy, 10) == pytest.approx(1 - (1 - 1 / 8) ** 8)
    expected = 0.8 * 0.2 * left_of_transfer(missing_layers(busy, 10), 0.5)
    assert wait(busy, 10, 1.0, 0.2) == pytest.approx(expected)
    stall = load_stall(busy, 10, 1.0, 0.3, 0.2)
    assert stall == pytest.approx(10 * 0.3 + 10 * missing_layers(busy, 10) * expected)


def test_shares_are_means_over_the_number_of_misses() -> None:
    price = MissPrices(link=4.0, contended=6.0, cpu=3.0, hand_over=2.0, hit=0.5)
    layer = StepCounts(2.0, 1.0, 1.0, 0.0, 0.0, 0.0)  # two experts of one layer, each missing by a half
    found = shares(price, layer, 1)
    on_cpu, both = price.cheapest(1, 1), price.cheapest(2, 0)
    one, two = price.cost(1, on_cpu, 1), price.cost(2, both, 0)
    assert found.stall + found.cpu == pytest.approx(0.5 * one + 0.25 * two)
    assert found.computed == pytest.approx(0.5 * on_cpu + 0.25 * both)
    assert background_link(1.0, found, 6.0) == pytest.approx(max(0.05, 1.0 + found.cpu / 6 - found.computed))


def test_prices_are_of_what_link_and_cpu_leave_each_other() -> None:
    one = Costs(load_model(HOME, "qwen3-30b-a3b-fp8"), load_hardware(HOME, "rtx4090"), CALIBRATION)
    found = prices(one, 0.5, counts(needed=384.0, hits=336.0), 1, 8e-3)
    assert found.link == pytest.approx(4_718_592 / (25e9 * 0.5)) and found.contended == pytest.approx(
        found.link * 25 / 15
    )
    kernel = CALIBRATION.value("ktransformers.cpu_efficiency")
    assert found.cpu == pytest.approx(4_718_592 / ((96 - 15) * 1e9 * kernel))
    assert 7 * found.hit == pytest.approx(one.experts(7))


def test_computing_misses_beats_loading_them_over_a_slow_link_and_never_where_the_cpu_is_slower() -> None:
    model, hardware = load_model(HOME, "gpt-oss-120b-mxfp4"), load_hardware(HOME, "rtx4090")
    simulator = Simulator(HOME, CALIBRATION)
    loading, split = (simulator.run(name, model, hardware, 0.3) for name in ("seqmoe", "seqmoe_cpu"))
    assert split.decode_tok_s > loading.decode_tok_s and split.time.cpu > 0
    assert hardware.rates is not None
    crawling = replace(hardware, rates=replace(hardware.rates, cpu_memory_sustained=1.0))
    alone = simulator.run("seqmoe_cpu", model, crawling, 0.3)
    assert alone.time.cpu == 0 and alone.time.stall == pytest.approx(loading.time.stall, rel=0.05)
