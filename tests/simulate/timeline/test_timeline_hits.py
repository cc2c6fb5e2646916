"""Protects that the simulator is the replay under another clock: at one link rate both give the same hits."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.predictor.base import SequenceContext
from seqmoe.simulate.policies import Foresight
from seqmoe.simulate.replay import ReplayOptions, replay_traces
from seqmoe.simulate.timeline.hits import ACTIVATION, static_counts, step_counts, without_pool
from seqmoe.simulate.timeline.oracle import ROWS
from seqmoe.simulate.timeline.workload import Workload
from seqmoe.spec.geometry import Geometry
from seqmoe.traces.synthesis.process import RoutingProcess
from seqmoe.traces.synthesis.requests import SyntheticRequests, synthesise

GEOMETRY = Geometry(6, 24, 3)
PROCESS = RoutingProcess(1.0, 0.2, 1.5, 0.8)
REQUESTS = SyntheticRequests(GEOMETRY, PROCESS, 1, 20, 40)


class Blurred:
    """A predictor that gives any forecast it was told, for the only request there is."""

    layers, experts, ranges = GEOMETRY.layers, GEOMETRY.experts, ((0, 3), (3, 6))

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def forecast_sequence(self, activation, lookahead: int, stride: int, context: SequenceContext | None = None):
        return np.arange(0, len(self._rows), stride), self._rows[::stride]


def work(rows: np.ndarray | None) -> Workload:
    experts = REQUESTS[0].experts.astype(np.int64)
    active = np.zeros((60, GEOMETRY.layers, GEOMETRY.experts), dtype=bool)
    np.put_along_axis(active, experts, True, axis=-1)
    foresight = None
    if rows is not None:
        padded = np.concatenate([np.zeros_like(rows[:1]), rows])
        foresight = Foresight(padded, Blurred.ranges)
    return Workload(GEOMETRY, active, np.arange(60) >= 20, foresight)


def forecasts() -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.random((60, ROWS, GEOMETRY.layers, GEOMETRY.experts), dtype=np.float32)


@pytest.mark.parametrize("policy", ["lru", "seqmoe", "seqmoe_infinity", "seqmoe_cache_only", "lru+promoe"])
@pytest.mark.parametrize("link", [0.4, 1.7])
def test_hits_equal_the_replays_at_the_same_rate_of_the_link(policy: str, link: float) -> None:
    rows = forecasts()
    traces = synthesise("m", REQUESTS)
    predictor = None if policy == "lru" else Blurred(rows)
    replayed = replay_traces(traces, [policy], [0.25], ReplayOptions(links=(link,)), predictor=predictor)  # type: ignore[arg-type]
    counts = step_counts(work(rows), policy, 0.25, link)
    assert counts.hit_rate == pytest.approx(replayed[0].hit_rate, abs=1e-12)
    assert counts.needed == GEOMETRY.layers * GEOMETRY.top_k
    assert counts.hits + counts.misses == pytest.approx(counts.needed)


def test_a_faster_link_prefetches_more() -> None:
    slow, fast = (step_counts(work(forecasts()), "seqmoe", 0.25, link) for link in (0.1, 2.0))
    assert slow.sent < fast.sent


def test_request_frequency_needs_no_forecast_and_prefetches_by_it() -> None:
    counts = step_counts(work(None), ACTIVATION.name, 0.25, 1.0, history=True)
    assert counts.sent > 0 and 0 < counts.hit_rate < 1
    with pytest.raises(ValueError, match="needs forecasts"):
        step_counts(work(None), "seqmoe", 0.25, 1.0)


def test_whole_layers_and_no_pool_are_counted_as_they_are() -> None:
    half = static_counts(work(None), 0.5)
    assert half.hit_rate == 0.5 and half.misses == half.needed / 2
    assert without_pool(work(None), resident=True).misses == 0
    assert without_pool(work(None), resident=False).hits == 0


def test_a_batch_needs_more_experts_and_asks_for_more_tasks() -> None:
    rows = forecasts()
    single = work(rows)
    pair = Workload(GEOMETRY, single.active | np.roll(single.active, 7, axis=0), single.counted, single.foresight, 2)
    assert pair.distinct > single.distinct
    assert single.tasks is not None and pair.tasks is not None
    assert single.tasks[0].shape[-1] == GEOMETRY.top_k + 3
    assert pair.tasks[0].shape[-1] == 2 * (GEOMETRY.top_k + 3)
