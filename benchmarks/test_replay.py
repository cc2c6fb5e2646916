"""Replay throughput on a synthetic request (24 layers, 32 experts, top-4), beside a plain-Python LRU."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from seqmoe.core.simulate import replay

LAYERS, EXPERTS, TOP_K, STEPS, SLOTS = 24, 32, 4, 500, 192


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(0)
    popularity = rng.random((LAYERS, EXPERTS)) ** 3
    noise = rng.random((STEPS, LAYERS, EXPERTS))
    expert = np.argsort(noise - 0.7 * popularity, axis=-1)[..., :TOP_K].astype(np.int32)
    return np.ascontiguousarray(expert)


def _core(expert):
    events = STEPS * LAYERS
    layer = np.tile(np.arange(LAYERS, dtype=np.int32), STEPS)
    start = np.arange(events + 1, dtype=np.int64) * TOP_K
    return replay(LAYERS, EXPERTS, SLOTS, layer, start, expert.ravel(), 0, "lru", sequential=True).hits


def _ordered_dict(expert):
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in (expert + np.arange(LAYERS)[None, :, None] * EXPERTS).ravel().tolist():
        if key in cache:
            hits += 1
            cache.move_to_end(key)
            continue
        if len(cache) == SLOTS:
            cache.popitem(last=False)
        cache[key] = None
    return hits


@pytest.mark.benchmark(group="LRU replay of 48,000 accesses")
@pytest.mark.parametrize("way", [_core, _ordered_dict], ids=["core", "OrderedDict"])
def test_lru(benchmark, trace, way):
    assert benchmark(way, trace) == _ordered_dict(trace)
