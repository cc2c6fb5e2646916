"""Protects SeqMoE's settings in the simulator: the paper's are the default, and each changes what it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqmoe.simulate.timeline.costs import PREDICTOR_KERNELS, Costs
from seqmoe.simulate.timeline.oracle import Recall
from seqmoe.simulate.timeline.settings import PAPER, Settings
from seqmoe.simulate.timeline.workload import synthetic_workload
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.traces.synthesis.process import RoutingProcess

HOME = find_home(Path(__file__).parent)
PROCESS = RoutingProcess(1.0, 0.2, 1.5, 0.8)


def costs(**changes: float) -> Costs:
    hardware = load_hardware(HOME, "rtx4090")
    assert hardware.rates is not None
    rates = replace(hardware.rates, **changes)
    model = load_model(HOME, "qwen3-30b-a3b-fp8")
    return Costs(model, replace(hardware, rates=rates), load_calibration(HOME))


def test_the_papers_are_the_default_and_networks_share_all_layers() -> None:
    assert (PAPER.extra, PAPER.horizon, PAPER.predictors) == (3, 8, 2)
    assert PAPER.ranges(43) == ((0, 21), (21, 43))
    assert Settings(predictors=4).ranges(48) == ((0, 12), (12, 24), (24, 36), (36, 48))
    assert Settings(predictors=4).ranges(2) == ((0, 1), (1, 2))


@pytest.mark.parametrize("wrong", [{"extra": -1}, {"horizon": 0}, {"horizon": 9}, {"predictors": 0}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)


def test_a_pass_of_a_predictor_is_its_bytes_or_its_kernels_whichever_take_longer() -> None:
    slow, quick = costs(cache_bandwidth=100.0), costs(cache_bandwidth=1e6)
    size = slow.decoding.predictor_bytes
    assert slow.predictor() == pytest.approx(size / 907e9 + 8 * size / 100e9)
    assert quick.predictor() == pytest.approx(size / 907e9 + 2 * 8 * PREDICTOR_KERNELS * 2e-6)
    by_count = [costs(cache_size=200.0).predictor(Settings(predictors=count)) for count in (1, 2, 4)]
    assert by_count[0] < by_count[1] < by_count[2]
    one = Settings(predictors=1)
    assert costs().predictor(one) > costs(cache_size=200.0).predictor(one), "120 MB do not fit 72 MiB of cache"
    assert costs().predictor(Settings(horizon=2)) < costs().predictor()


def test_a_workload_uses_its_forecasts_as_the_settings_say() -> None:
    work = synthetic_workload(Geometry(4, 32, 3), PROCESS, 1, Recall(0.9, 0.04))
    other = work.with_settings(Settings(extra=1, horizon=2, predictors=4))
    assert work.foresight is not None and other.foresight is not None
    assert other.foresight.ranges == ((0, 1), (1, 2), (2, 3), (3, 4)) and work.foresight.ranges == ((0, 2), (2, 4))
    assert np.shares_memory(other.foresight.padded, work.foresight.padded) and other.foresight.padded.shape[1] == 3
    assert work.tasks is not None and other.tasks is not None
    assert (work.tasks[0].shape[-1], other.tasks[0].shape[-1]) == (6, 4)
    assert np.array_equal(work.tasks[0][..., :4], other.tasks[0])
    blind = synthetic_workload(Geometry(4, 32, 3), PROCESS, 1, None)
    assert blind.with_settings(Settings(extra=1)) is blind
