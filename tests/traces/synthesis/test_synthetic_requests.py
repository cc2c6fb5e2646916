"""Protects synthetic routing: it is reproducible, says what it is, and looks like routing that it was not fitted to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqmoe.simulate.timeline.cell import routing_process
from seqmoe.simulate.timeline.hits import step_counts
from seqmoe.simulate.timeline.workload import Workload
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.paths import find_home
from seqmoe.spec.trace import PREFILL
from seqmoe.traces.source import load_traces
from seqmoe.traces.statistics import routing_statistics
from seqmoe.traces.synthesis.process import RoutingProcess
from seqmoe.traces.synthesis.requests import SOURCE, SyntheticRequests, synthesise
from seqmoe.traces.synthesis.reuse import repeats

SMALL = Geometry(4, 24, 3)
PROCESS = routing_process(load_calibration(find_home(Path(__file__).parent)))


def test_the_same_seed_makes_the_same_requests_and_another_makes_others() -> None:
    requests, again = (SyntheticRequests(SMALL, PROCESS, 3, 5, 20, seed=7) for _ in range(2))
    for one, other in zip(requests, again, strict=True):
        np.testing.assert_array_equal(one.experts, other.experts)
    assert (requests[0].experts != requests[1].experts).any()
    other = SyntheticRequests(SMALL, PROCESS, 3, 5, 20, seed=8)
    assert (requests[0].experts != other[0].experts).any()
    assert requests[-1].identifier == requests[2].identifier and len(requests[1:]) == 2


def test_requests_are_whole_and_say_what_they_are() -> None:
    traces = synthesise("some-model", SyntheticRequests(SMALL, PROCESS, 2, 5, 20))
    assert traces.source == SOURCE == "synthetic routing"
    for request in traces.requests:
        traces.check(request, "request")
        assert request.dataset == SOURCE
        assert (request.phase == PREFILL).sum() == 5 and request.decode_steps == 20
        assert (np.diff(np.sort(request.experts, axis=-1), axis=-1) > 0).all(), "an expert is chosen twice"
        assert request.weights is not None
        np.testing.assert_allclose(request.weights.sum(-1), 1, atol=1e-5)
        assert (np.diff(request.weights, axis=-1) <= 0).all(), "experts are in router order, best first"


@pytest.mark.parametrize(("window", "skip"), [(1, 0), (4, 0), (4, 9)])
def test_repeats_are_as_counted_by_hand(window: int, skip: int) -> None:
    experts = SyntheticRequests(SMALL, PROCESS, 1, 0, 30)[0].experts
    again, total = 0, 0
    for step in range(max(skip, window), len(experts)):
        for layer in range(SMALL.layers):
            for expert in experts[step, layer]:
                again += expert in experts[step - window : step, layer]
                total += 1
    assert repeats(experts, SMALL.experts, window, skip) == pytest.approx(again / total)


def test_bursts_and_topics_are_what_makes_experts_repeat() -> None:
    def overlap(process: RoutingProcess) -> float:
        return repeats(SyntheticRequests(SMALL, process, 1, 0, 400)[0].experts, SMALL.experts, 1)

    bare = RoutingProcess(0.0, 0.0, 0.0, 0.0)
    assert overlap(bare) < overlap(replace(bare, working_set=2.0)) < 1
    assert overlap(bare) < overlap(replace(bare, burst=2.0, burst_memory=0.9)) < 1
    with pytest.raises(ValueError, match="burst_memory"):
        RoutingProcess(1.0, 0.0, 1.0, 1.0)
    with pytest.raises(InputError, match="--requests 0"):
        SyntheticRequests(SMALL, PROCESS, 0, 5, 20)


def test_held_out_statistics_of_real_routing_are_near(real_data: Path) -> None:
    """GPT-OSS-20B's real traces: of its statistics only the overlap in any order had a say, in a topic's memory."""
    real = load_traces(real_data / "traces" / "gpt-oss-20b.npz")
    geometry = Geometry(real.layers, real.experts, real.top_k)
    chosen = [real.requests[index] for index in range(0, len(real.requests), 40)]
    chosen = [request for request in chosen if len(request.experts) >= 200]
    length = int(np.median([len(request.experts) for request in chosen]))
    drawn = list(SyntheticRequests(geometry, PROCESS, len(chosen), 0, length))

    def rate(requests: list, policy: str, residency: float) -> float:
        rates = []
        for request in requests:
            active = np.zeros((len(request.experts), real.layers, real.experts), dtype=bool)
            np.put_along_axis(active, request.experts.astype(np.int64), True, axis=-1)
            work = Workload(geometry, active, np.arange(len(active)) >= 64, None)
            rates.append(step_counts(work, policy, residency, 0.0).hit_rate)
        return float(np.mean(rates))

    # Belady knows the whole order of uses, so it is the sharpest test of reuse at every distance. LRU is up to eight
    # points off, LFU up to seven: real requests hold on to fewer experts than synthetic ones.
    for policy, tolerance in (("belady", 0.06), ("lru", 0.10), ("lfu", 0.10)):
        for residency in (0.15, 0.25, 0.45):
            assert rate(drawn, policy, residency) == pytest.approx(rate(chosen, policy, residency), abs=tolerance)
    ours = routing_statistics(synthesise("x", SyntheticRequests(geometry, PROCESS, 4, 0, length)))
    theirs = routing_statistics(replace(real, requests=tuple(chosen)))
    assert ours.entropy == pytest.approx(theirs.entropy, abs=0.06)
    assert ours.overlap == pytest.approx(theirs.overlap, abs=0.10)
    assert ours.reuse_median == theirs.reuse_median
    assert ours.first_use == pytest.approx(theirs.first_use, abs=0.02)
