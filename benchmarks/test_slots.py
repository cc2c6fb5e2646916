"""The slot table under LRU: what an event costs, beside the same cache over Python's ordered dictionary.

An event of the paper's Qwen3-30B-A3B geometry needs 8 experts of 128; the pool holds 45 % of all 48 layers. The floor
is the routing's own arrays read once, with nothing decided. The budget is a layer of computation: about 170 us.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from seqmoe.core.slots import SlotTable

LAYERS, EXPERTS, TOP_K, STEPS = 48, 128, 8, 12
SLOTS = round(0.45 * LAYERS * EXPERTS)


@pytest.fixture(scope="module")
def events():
    """Layer and experts [k] of every event, skewed as routing is, and long enough to fill the pool."""
    rng = np.random.default_rng(0)
    popularity = rng.random((LAYERS, EXPERTS)) ** 3
    noise = rng.random((STEPS, LAYERS, EXPERTS))
    chosen = np.argsort(noise - 0.7 * popularity, axis=-1)[..., :TOP_K].astype(np.int32)
    return [(layer, chosen[step, layer]) for step in range(STEPS) for layer in range(LAYERS)]


# Each prepares its cache and returns the pass over all events that is timed, which returns the misses.


def _table(events):
    table = SlotTable(LAYERS, EXPERTS, SLOTS)
    clock = 0.0

    def run():
        nonlocal clock
        missed, slot_of, score = 0, table.slot_of, table.score
        for layer, wanted in events:
            table.begin_event(layer, wanted)
            clock += 1
            for expert in wanted.tolist():
                if slot_of[layer, expert] < 0:
                    table.load(layer, expert)
                    missed += 1
                score[layer, expert] = clock
            table.release_layer(layer)
        return missed

    return run


def _ordered_dict(events):
    cache: OrderedDict[int, None] = OrderedDict()

    def run():
        missed = 0
        for layer, wanted in events:
            keys = [layer * EXPERTS + expert for expert in wanted.tolist()]
            hits = [key for key in keys if key in cache]
            # What an event needs is not evicted by it: its hits are the newest before anything has to go.
            for key in hits:
                cache.move_to_end(key)
            for key in keys:
                if key in cache:
                    cache.move_to_end(key)
                    continue
                missed += 1
                if len(cache) == SLOTS:
                    cache.popitem(last=False)
                cache[key] = None
        return missed

    return run


def _reading(events):
    def run():
        return sum(int(wanted[0]) for _, wanted in events)

    return run


WAYS = {"table": _table, "ordered_dict": _ordered_dict, "floor": _reading}


@pytest.mark.benchmark(group=f"LRU over {STEPS * LAYERS} events of {TOP_K} experts, {SLOTS} slots")
@pytest.mark.parametrize("way", ["table", *(pytest.param(way, marks=pytest.mark.peer) for way in list(WAYS)[1:])])
def test_slots(benchmark, events, way):
    first = {name: WAYS[name](events) for name in ("table", "ordered_dict")}
    for _ in range(2):  # from a cold pool, and once it is full: the same misses
        assert first["table"]() == first["ordered_dict"]()
    benchmark(WAYS[way](events))
    benchmark.extra_info["us_per_event"] = round(1e6 * benchmark.stats.stats.median / len(events), 2)
