"""Protects misses on the CPU: answers stay full load's, the imitated host's time passes, and refusals are plain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqmoe.predictor.first_order import FirstOrder
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.host_misses import HostMisses
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.setup import Setup
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.pace import MissPrices, Pace
from seqmoe.spec.system import system

PROMPT = list(b"misses are computed where they lie")
TOKENS = 32
PRICES = MissPrices(link=2e-4, contended=3e-4, cpu=1e-4, hand_over=5e-5, hit=1e-5)
PACE = Pace(1e-3, 2e-4, PRICES)


@pytest.fixture(scope="module")
def engine(tiny_checkpoint):
    torch.set_num_threads(1)
    engine = Engine.load(tiny_checkpoint)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def predictor(engine):
    geometry = engine.geometry
    shape = (geometry.layers, geometry.experts, geometry.experts)
    chance = np.random.default_rng(0).random(shape, dtype=np.float32)
    return FirstOrder(chance / chance.sum(-1, keepdims=True) * geometry.top_k, geometry.top_k, recent=0.5)


def full_load(engine):
    engine.place_full()
    return engine.generate(PROMPT, TOKENS, keep_logits=True)


@pytest.mark.parametrize("emulation", [None, Emulation(PACE, 1.0)])
@pytest.mark.parametrize("residency", [1 / 16, 0.45])
def test_misses_are_computed_and_the_answer_stays(engine, predictor, residency, emulation):
    expected = full_load(engine)
    engine.place(system("seqmoe_cpu"), residency, predictor, emulation)
    meter = DecodeMeter(engine)
    got = engine.generate(PROMPT, TOKENS, keep_logits=True, on_token=meter)
    meter.prompt_done()
    assert got.tokens == expected.tokens
    assert torch.equal(torch.stack(got.logits), torch.stack(expected.logits))
    counted = meter.statistics(emulation)
    assert 0 < counted["host_computed"] <= counted["misses"]
    assert counted["needed"] == counted["hits"] + counted["late"] + counted["misses"]
    assert (counted["cpu_seconds"] > 0) == (emulation is not None)


def test_at_this_hosts_own_speed_nothing_is_loaded_on_demand_while_decoding(engine, predictor):
    engine.place(system("seqmoe_cpu"), 0.45, predictor, None)
    meter = DecodeMeter(engine)
    engine.generate(PROMPT, TOKENS, on_token=meter)
    meter.prompt_done()
    assert meter.statistics(None)["bytes_on_demand"] == 0


def test_other_systems_do_not_report_it(engine, predictor):
    engine.place(system("seqmoe"), 0.45, predictor, None)
    meter = DecodeMeter(engine)
    engine.generate(PROMPT, 4, on_token=meter)
    meter.prompt_done()
    assert "host_computed" not in meter.statistics(None)


@pytest.fixture
def misses(engine):
    return lambda emulation=None: HostMisses(engine.host, Geometry(2, 8, 4, 100), emulation)


def test_the_table_says_how_many_are_loaded(misses):
    expected = [count - PRICES.cheapest(count, 4 - count) for count in range(5)]
    assert misses(Emulation(PACE, 3.0)).loads(4).tolist() == expected
    assert misses().loads(3).tolist() == [0, 0, 0, 0]


def test_the_imitated_host_takes_the_longer_of_cpu_and_contended_link_in_stretched_time(misses):
    found = misses(Emulation(PACE, 10.0))
    found.entered((2, 0, 0, 3))
    assert found.take(0.0) == pytest.approx(10 * (5e-5 + 3e-4 - 2e-5))
    found.entered((2, 0, 1, 1))
    assert found.take(0.008) == pytest.approx(0.012), "the link is half as slow again beside the CPU"
    assert found.seconds == pytest.approx(3.3e-3 + 0.004)
    found.entered((4, 0, 2, 0))
    assert found.take(0.004) == 0.004, "loads alone are on an idle link"


def test_what_cannot_be_is_refused(misses):
    with pytest.raises(InputError, match=r"\[rates\]"):
        misses(Emulation(replace(PACE, misses=None), 1.0))
    with pytest.raises(InputError, match="tier 'disk'"):
        Setup(system("seqmoe_cpu"), 0.45, host="disk")
    with pytest.raises(ValueError, match=r"execution = .graph..*seqmoe_cpu"):
        replace(system("seqmoe_cpu"), execution="graph")
