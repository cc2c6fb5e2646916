"""Protects the advice for a machine: what fits is arithmetic, settings earn their place, errors are held-out ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqmoe.simulate.advice.answer import Answer
from seqmoe.simulate.advice.limit import limit_of
from seqmoe.simulate.advice.memory import device_memory, fits_host, host_bytes, largest_residency
from seqmoe.simulate.advice.options import Options, Question
from seqmoe.simulate.advice.trust import ANY, trust
from seqmoe.simulate.advice.tune import LEAST_GAIN, UNTUNED, tune
from seqmoe.simulate.calibrate.errors import Judged
from seqmoe.simulate.calibrate.figure6 import points
from seqmoe.simulate.timeline.cell import Simulated, Simulator
from seqmoe.simulate.timeline.costs import USABLE, Costs
from seqmoe.simulate.timeline.decode import StepTime
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.oracle import Recall
from seqmoe.simulate.timeline.settings import PAPER, Settings
from seqmoe.simulate.timeline.systems import SIMULATED
from seqmoe.spec import fitting
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)
CALIBRATION = load_calibration(HOME)


def costs(model: str, gpu: str) -> Costs:
    return Costs(load_model(HOME, model), load_hardware(HOME, gpu), CALIBRATION)


@pytest.mark.parametrize(
    ("model", "gpu", "most"),
    [("qwen3.6-35b-a3b-bf16", "rtx5090", 0.40), ("gpt-oss-120b-mxfp4", "rtx4090", 0.308)],
)
def test_the_largest_residency_is_what_the_memory_holds(model: str, gpu: str, most: float) -> None:
    """40 % of Qwen3.6 is what fits the RTX 5090 (paper, section 9.2)."""
    one, row = costs(model, gpu), SIMULATED["seqmoe"]
    found = largest_residency(one, row, 1, 576)
    assert found == pytest.approx(most, abs=0.015)
    room = device_memory(one, row, 1, 576).for_experts
    every = one.model.geometry.total_experts * one.model.expert_bytes
    assert found * every <= room < (found + 0.002) * every
    assert largest_residency(one, row, 64, 100_000) < found


def test_a_model_that_fits_is_held_whole_and_one_that_never_fits_not_at_all() -> None:
    assert largest_residency(costs("qwen3-30b-a3b-fp8", "h200"), SIMULATED["full"], 1, 576) == 1.0
    assert largest_residency(costs("qwen3-30b-a3b-fp8", "rtx4090"), SIMULATED["seqmoe"], 1, 10**9) == 0.0


def test_the_host_holds_all_experts_or_what_the_cpu_computes() -> None:
    one = costs("qwen3-30b-a3b-fp8", "rtx4090")
    assert host_bytes(one, SIMULATED["seqmoe"], 0.5) == pytest.approx(29.0e9, rel=0.01)
    assert host_bytes(one, SIMULATED["llama.cpp"], 0.5) == pytest.approx(14.5e9, rel=0.01)
    assert host_bytes(one, SIMULATED["full"], 1.0) == 0
    assert fits_host(29e9, None) is None and fits_host(29e9, 64) is True and fits_host(29e9, 32) is False


def test_settings_change_only_for_a_gain_that_another_draw_confirms() -> None:
    def speed(settings: Settings) -> float:
        return 100 + 3 * (settings.predictors == 1) + 1 * (settings.extra == 6) - 5 * (settings.horizon < 8)

    found = tune(speed, lambda settings: 50 + (settings.predictors == 1))
    assert found.settings == Settings(extra=6, predictors=1) and found.gain == pytest.approx(0.02)
    assert tune(speed, lambda _: 50.0) == UNTUNED
    assert tune(lambda settings: 100 + (settings != PAPER), speed) == UNTUNED
    assert UNTUNED.settings == PAPER and LEAST_GAIN > 0


def test_trust_is_the_print_over_the_simulation_and_others_stand_in_for_a_system_without_bars() -> None:
    four = [p for p in points(HOME) if p.bar.panel == "decode-short" and p.bar.model.startswith("GPT")]
    judged = [Judged(point, point.printed / (1.2 if point.system == "seqmoe" else 0.5), False) for point in four]
    own = trust(judged, "seqmoe", ttft=False)
    assert (own.of, own.bars) == ("seqmoe", 4)
    assert own.low == own.high == pytest.approx(1.2) and own.median == pytest.approx(1 / 6)
    others = trust(judged, "lru", ttft=False)
    assert others.of == ANY and others.bars == len([point for point in four if point.system != "full"])
    assert (others.low, others.high) == (pytest.approx(0.5), pytest.approx(1.2))


def test_limits_are_told_apart() -> None:
    one = costs("qwen3-30b-a3b-fp8", "rtx4090")

    def found(computation: float, stall: float, cpu: float, sent: float) -> Simulated:
        time = StepTime(computation, 0.0, 0.0, stall, cpu, 0.0)
        return Simulated(1, time, StepCounts(384.0, 300.0, 84.0, 0.0, sent, 0.0), 1.0, 1.0)

    moved = one.transfer()
    assert limit_of(one, found(9e-3, 1e-3, 0.0, 0.0)) == "computation"
    assert limit_of(one, found(1e-3, 84 * moved, 0.0, 0.0)) == "link"
    assert limit_of(one, found(1e-3, 120 * moved, 0.0, 0.0)) == "misses"
    assert limit_of(one, found(1e-3, 0.0, 5e-3, 0.0)) == "cpu"


def test_a_question_is_answered_with_the_fastest_that_runs_and_reasons_for_the_rest() -> None:
    """On a model cut down to few layers; the bars' errors are made by hand."""
    model = load_model(HOME, "qwen3-30b-a3b-fp8")

    small = replace(model, layers=4)
    asked = Question(small, load_hardware(HOME, "rtx4090"), 1, 64, 2.0)
    judged = [Judged(point, point.printed, False) for point in points(HOME)]
    simulator = Simulator(HOME, CALIBRATION, 0, Recall(0.909, 0.036))
    options = Options(asked, simulator, simulator)
    found = {option.system: option for option in (options.of(name, judged) for name in ("seqmoe", "FreeToken"))}
    assert found["FreeToken"].obstacle == "does not run this model in the paper"
    assert "the host needs 2 GB" in found["seqmoe"].obstacle
    told = Options(replace(asked, ram=64.0), simulator, simulator).of("full", judged)
    assert told.residency == 1.0 and told.found is not None and told.limit == "computation"
    assert told.decode_range == pytest.approx((told.found.decode_tok_s,) * 2)
    whole = Answer(asked, (told, found["FreeToken"]), None, (), frozenset({model.title}))
    assert whole.best is told and whole.caveats() == []
    assert whole.as_dict()["options"][1]["obstacle"]
    assert Answer(asked, (found["FreeToken"],), None, (), frozenset()).best is None


@pytest.mark.parametrize(("model", "gpu"), [("qwen3-30b-a3b-fp8", "rtx4090"), ("qwen3.6-35b-a3b-bf16", "rtx5090")])
def test_the_doctor_says_that_the_same_residency_fits(model, gpu) -> None:
    one = costs(model, gpu)
    found = fitting.fit(one.model, int(one.hardware.memory * 2**30), 256 << 30)
    decoded = fitting.TOKENS - 1024
    assert found.largest == pytest.approx(largest_residency(one, SIMULATED["seqmoe"], 1, decoded), abs=0.002)
    assert fitting.USABLE == USABLE
