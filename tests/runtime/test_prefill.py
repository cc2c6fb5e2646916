"""Protects prefetching for prompts: what is fetched, in which order, how much of the pool it takes, and its count."""

from __future__ import annotations

import numpy as np
import pytest
from family_models import save_tiny

from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.prefill import PromptPrefetcher
from seqmoe.runtime.prompt import PromptEvent
from seqmoe.runtime.retention import Offline
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.pace import Pace
from seqmoe.spec.system import SystemSpec

GEOMETRY = Geometry(layers=4, experts=6, top_k=2)


class Pipeline:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float, int]] = []

    def prefetch(self, keys, confidence, deadline):
        """See `seqmoe.core.pipeline`."""
        self.asked += zip(keys.tolist(), confidence.tolist(), deadline.tolist(), strict=True)


class Table:
    """A pool in which some experts are."""

    def __init__(self, resident=()) -> None:
        self.slot_of = np.full((4, 6), -1, dtype=np.int32)
        for slot, key in enumerate(resident):
            self.slot_of.ravel()[key] = slot


def _prefetcher(policy, slots, popularity=None, resident=()):
    pipeline = Pipeline()
    return PromptPrefetcher(policy, GEOMETRY, slots, Table(resident), pipeline, popularity), pipeline


def test_the_most_popular_of_the_first_layers_come_first_and_leave_a_layers_slots():
    popularity = np.tile(np.array([0.1, 0.6, 0.2, 0.9, 0.05, 0.15], dtype=np.float32), (4, 1))
    prefetcher, pipeline = _prefetcher("popularity", slots=11, popularity=popularity)
    prefetcher.begin(steps=100, position=20, stride=2)
    # Five slots beside a layer's six: of layer 0, by popularity.
    assert [key for key, _, _ in pipeline.asked] == [3, 1, 2, 5, 0]
    assert {deadline for _, _, deadline in pipeline.asked} == {20}
    assert pipeline.asked[0][1] == pytest.approx(0.9)
    # Layer 0 is done: its five go to layer 1.
    pipeline.asked.clear()
    prefetcher.after(0)
    assert [key for key, _, _ in pipeline.asked] == [9, 7, 8, 11, 6]
    assert {deadline for _, _, deadline in pipeline.asked} == {22}


def test_a_short_prompt_fetches_only_what_it_likely_needs():
    popularity = np.tile(np.array([0.6, 0.5, 0.4, 0.3, 0.2, 0.0], dtype=np.float32), (4, 1))
    prefetcher, pipeline = _prefetcher("popularity", slots=24, popularity=popularity)
    prefetcher.begin(steps=1, position=0, stride=2)
    assert [key for key, _, _ in pipeline.asked] == [0, 1, 6, 7, 12, 13, 18, 19]
    pipeline.asked.clear()
    prefetcher.begin(steps=3, position=0, stride=2)
    # 1 - 0.8 ** 3 < 0.5 <= 1 - 0.7 ** 3: four of each layer are likely needed by three tokens.
    assert {key % 6 for key, _, _ in pipeline.asked} == {0, 1, 2, 3}


def test_what_is_resident_is_not_asked_for():
    popularity = np.full((4, 6), 0.9, dtype=np.float32)
    prefetcher, pipeline = _prefetcher("popularity", slots=8, popularity=popularity, resident=[0, 2])
    prefetcher.begin(steps=10, position=0, stride=2)
    assert [key for key, _, _ in pipeline.asked] == [1, 3]


def test_ping_pong_fetches_the_one_next_layer():
    prefetcher, pipeline = _prefetcher("ping_pong", slots=20)
    prefetcher.begin(steps=5, position=0, stride=2)
    assert [key for key, _, _ in pipeline.asked] == [0, 1, 2, 3, 4, 5]
    pipeline.asked.clear()
    prefetcher.after(0)
    assert [key for key, _, _ in pipeline.asked] == [6, 7, 8, 9, 10, 11]
    pipeline.asked.clear()
    prefetcher.after(3)
    assert pipeline.asked == []


@pytest.mark.parametrize(("policy", "slots"), [("on_demand", 24), ("ping_pong", 6), ("popularity", 24)])
def test_nothing_is_fetched_without_need_room_or_profile(policy, slots):
    prefetcher, pipeline = _prefetcher(policy, slots)
    prefetcher.begin(steps=50, position=0, stride=2)
    prefetcher.after(0)
    assert pipeline.asked == []
    assert prefetcher.policy == ("on_demand" if policy == "popularity" else policy)


def test_prompts_of_a_batch_end_together():
    experts = np.array([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [0, 1]], dtype=np.int32)
    weights = np.full((6, 2), 0.5, dtype=np.float32)
    event = PromptEvent(experts, weights, np.array([True, True, True, False, True, True]), batch=2)
    assert event.steps == 3
    assert [np.flatnonzero(row).tolist() for row in event.active(6)] == [[0, 1], [1, 2, 3], [0, 1, 4, 5]]
    activation = event.activation(6)
    # The second request begins at step 1: until then the mean is the first one's.
    assert activation[0].tolist() == [0.5, 0.5, 0, 0, 0, 0]
    assert activation[1].tolist() == [0, 0.25, 0.25, 0.5, 0, 0]
    assert activation.sum(1) == pytest.approx(1.0)


@pytest.fixture(scope="module")
def engine(tiny_checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sixty")
    save_tiny("qwen3_moe", folder, tiny_checkpoint)
    engine = Engine.load(folder)
    yield engine
    engine.close()


def _bytes_of(engine, prefill, link):
    geometry = engine.geometry
    spec = SystemSpec("x", "X", retention="lru", prefill=prefill)
    popularity = np.full((geometry.layers, geometry.experts), 0.05, dtype=np.float32)
    engine.place(spec, 0.9, None, Emulation(Pace(link, link), 1.0), Offline(popularity))
    engine.pacer = None
    meter = DecodeMeter(engine)
    result = engine.generate(list(range(200)), 4, on_token=meter)
    meter.prompt_done()
    return result.tokens, meter


def test_fetching_ahead_hides_misses_and_changes_no_answer(engine):
    expected, none = _bytes_of(engine, "on_demand", 1e-4)
    assert none.prefill["prefetch_sent"] == 0
    for prefill in ("popularity", "ping_pong"):
        tokens, meter = _bytes_of(engine, prefill, 1e-4)
        assert tokens == expected
        assert meter.prefill["prefetch_used"] > 0
        assert meter.prefill["misses"] < none.prefill["misses"]
        # What was fetched in vain is the prompt's, not decoding's.
        assert meter.decode["prefetch_wasted"] == 0
        assert meter.statistics(None)["prefill_policy"] == prefill
