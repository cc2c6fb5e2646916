"""Protects the timeline's arithmetic, against the paper's full load and against sums by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from seqmoe.simulate.calibrate.figure6 import points
from seqmoe.simulate.calibrate.fit import is_input
from seqmoe.simulate.timeline.cell import SHORT, context_of
from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.decode import layer_time, link_per_layer, step_time
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.prefill import ttft
from seqmoe.simulate.timeline.systems import SIMULATED, simulated_system
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.spec.system import SYSTEMS

HOME = find_home(Path(__file__).parent)
CALIBRATION = load_calibration(HOME)
CONTEXT = context_of(SHORT)


def costs(model: str = "qwen3-30b-a3b-fp8", gpu: str = "rtx4090") -> Costs:
    return Costs(load_model(HOME, model), load_hardware(HOME, gpu), CALIBRATION)


def counts(of: Costs, hit_rate: float) -> StepCounts:
    needed = of.model.layers * of.model.top_k
    return StepCounts(needed, hit_rate * needed, (1 - hit_rate) * needed, 0.0, 0.0, 0.0)


def test_full_load_is_as_printed_since_it_was_fitted() -> None:
    full = [point for point in points(HOME) if point.system == "full" and is_input(CALIBRATION, point)]
    assert len(full) == 4
    for point in full:
        one = Costs(point.model, point.hardware, CALIBRATION)
        time = step_time(one, SIMULATED["full"], counts(one, 1.0), 1, CONTEXT)
        assert 1 / time.total == pytest.approx(point.printed, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "gpu", "devices"),
    [
        ("qwen3-30b-a3b-fp8", "rtx4090", 2),
        ("qwen3.6-35b-a3b-bf16", "rtx5090", 3),
        ("gpt-oss-120b-mxfp4", "rtx-pro-6000", 1),
        ("deepseek-v4-flash", "rtx-pro-6000", 2),
    ],
)
def test_full_load_takes_as_many_gpus_as_hold_the_model(model: str, gpu: str, devices: int) -> None:
    assert costs(model, gpu).devices() == devices


def test_a_load_costs_an_expert_over_the_link() -> None:
    one, system = costs(), SIMULATED["lru"]
    all_hits, one_miss = (step_time(one, system, replace(counts(one, 1.0), loads=n), 1, CONTEXT) for n in (0.0, 1.0))
    efficiency = CALIBRATION.value("seqmoe.link_efficiency")
    expected = 4_718_592 / (25e9 * efficiency)
    assert one_miss.total - all_hits.total == pytest.approx(expected)
    late = step_time(one, system, replace(counts(one, 1.0), late=1.0), 1, CONTEXT)
    assert late.stall == pytest.approx(one.transfer() / 2), "a prefetch goes at the link's own rate"


def test_the_link_moves_what_its_rate_and_a_layers_time_say() -> None:
    """At full-load speed 0.90 experts of Qwen3-30B cross an RTX 4090's link in a layer (errata on the paper's 1.39)."""
    bare = replace(SIMULATED["lru"], managed=False)
    assert link_per_layer(costs(), bare, 1, CONTEXT, 8) == pytest.approx(0.90, abs=0.01)
    assert link_per_layer(costs(), SIMULATED["seqmoe"], 1, CONTEXT, 8) > 0.90


def test_execution_modes_are_ordered_and_an_eager_layer_costs_its_launches() -> None:
    one = costs()
    graph, sync, eager = (layer_time(one, SIMULATED[name], 1, CONTEXT, 8) for name in ("full", "sync", "eager"))
    assert graph < sync < eager
    assert eager == pytest.approx(57 * one.rates.dispatch)


def test_the_cpu_computes_what_the_device_does_not_hold() -> None:
    one = costs()
    for name in ("llama.cpp", "KTransformers"):
        slow, fast = (step_time(one, SIMULATED[name], counts(one, rate), 1, CONTEXT) for rate in (0.2, 0.8))
        assert slow.cpu > fast.cpu > 0 and slow.stall == 0
    expected = 0.8 * 48 * 8 * 4_718_592 / (96e9 * CALIBRATION.value("llama_cpp.cpu_efficiency"))
    assert step_time(one, SIMULATED["llama.cpp"], counts(one, 0.2), 1, CONTEXT).cpu == pytest.approx(expected)


def test_ping_pong_does_not_depend_on_residency_and_the_others_do() -> None:
    one = costs("gpt-oss-120b-mxfp4", "rtx-pro-6000")
    for system in SIMULATED.values():
        low, high = (ttft(one, system, residency) for residency in (0.15, 0.45))
        if system.prefill in ("ping_pong", "resident"):
            assert low == high
        else:
            assert low > high
    assert ttft(one, SIMULATED["full"], 1.0) < ttft(one, SIMULATED["seqmoe"], 0.45)


def test_more_context_and_a_larger_batch_take_longer() -> None:
    one = costs()
    assert one.attention(1, 4000) > one.attention(1, 100)
    assert one.attention(4, 4000) > one.attention(1, 4000)
    assert one.experts(20, 4) > one.experts(8, 1)


def test_a_predictor_that_fits_the_cache_is_read_from_memory_once() -> None:
    small, large = costs(), costs("qwen3.6-35b-a3b-bf16", "rtx5090")
    assert small.predictor() < 9 * 120e6 / 907e9
    assert 228e6 / 1613e9 < large.predictor() < 9 * 228e6 / 1613e9
    share = small.predictor() * 122.7
    assert 0.01 < share < 0.10, "the paper has 4.02 % of a decode step"


def test_rows_name_systems_that_exist_and_unknown_ones_are_refused() -> None:
    ours = {"full", "naive", "lru", "seqmoe", "seqmoe_infinity", "seqmoe_cache_only"}
    assert ours <= set(SYSTEMS) and ours <= set(SIMULATED)
    with pytest.raises(InputError, match="did you mean 'seqmoe'"):
        simulated_system("seqmo")
    with pytest.raises(InputError, match=r"has no \[decoding\]"):
        _ = costs("reference").decoding
    assert set(asdict(step_time(costs(), SIMULATED["seqmoe"], counts(costs(), 0.9), 1, CONTEXT))) == {
        "computation", "predictor", "management", "stall", "cpu", "overhead",
    }  # fmt: skip


def test_the_bound_waits_only_for_what_the_link_cannot_move_meanwhile() -> None:
    one, bound = costs(), SIMULATED["bound"]
    few, many = (step_time(one, bound, replace(counts(one, 1.0), loads=n), 1, CONTEXT) for n in (1.0, 100.0))
    assert few.stall == 0 and few.total == few.computation
    assert many.total == pytest.approx(100 * one.transfer())
