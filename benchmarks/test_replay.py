"""Replay throughput on synthetic routing (24 layers, 32 experts, top-4), beside libCacheSim and plain Python.

Each way's accesses per second are in its ``extra_info``. libCacheSim reads the trace from a mapped file of its own
format, as its Python binding is meant to be used; the core reads numpy arrays and checks them.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from seqmoe.core.simulate import EventLoop, PrefetchRules, Replay, replay

LAYERS, EXPERTS, TOP_K, SLOTS = 24, 32, 4, 192
STEPS, MILLION = 10_000, 1_000_000
STATUS = Path("/proc/self/status")


def _routing(steps: int):
    rng = np.random.default_rng(0)
    popularity = rng.random((LAYERS, EXPERTS), dtype=np.float32) ** 3
    noise = rng.random((steps, LAYERS, EXPERTS), dtype=np.float32)
    return np.ascontiguousarray(np.argsort(noise - 0.7 * popularity, axis=-1)[..., :TOP_K].astype(np.int32))


def _events(steps: int):
    layer = np.tile(np.arange(LAYERS, dtype=np.int32), steps)
    return layer, np.arange(steps * LAYERS + 1, dtype=np.int64) * TOP_K


@pytest.fixture(scope="module")
def trace():
    return _routing(STEPS)


def _keys(expert):
    return (expert + np.arange(LAYERS)[None, :, None] * EXPERTS).ravel()


# Each of these prepares its own form of the trace and returns the replay that is timed, which returns the hits.


def _core(expert, folder):
    arrays = (*_events(len(expert)), expert.ravel())
    return lambda: replay(LAYERS, EXPERTS, SLOTS, *arrays, 0, "lru", sequential=True).hits


def _libcachesim(expert, folder):
    library = pytest.importorskip("libcachesim", reason="libcachesim is not installed; the dev extra has it")
    requests = np.zeros(expert.size, dtype=[("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
    requests["object"], requests["size"], requests["time"], requests["next"] = _keys(expert), 1, 1, -1
    requests.tofile(folder / "routing.bin")
    reader = library.TraceReader(str(folder / "routing.bin"), library.TraceType.ORACLE_GENERAL_TRACE)

    def run():
        reader.reset()
        # A table of 4,096 buckets; making the default's 16 million would take longer than the replay.
        missed, _ = library.LRU(SLOTS, hashpower=12).process_trace(reader)
        return round((1 - missed) * expert.size)

    return run


def _ordered_dict(expert, folder):
    keys = _keys(expert).tolist()

    def run():
        cache: OrderedDict[int, None] = OrderedDict()
        hits = 0
        for key in keys:
            if key in cache:
                hits += 1
                cache.move_to_end(key)
                continue
            if len(cache) == SLOTS:
                cache.popitem(last=False)
            cache[key] = None
        return hits

    return run


def _floor(expert, folder):
    """One pass over the routing, with nothing decided."""
    return lambda: int(expert.sum())


@pytest.mark.benchmark(group="LRU replay of 960,000 accesses, one at a time")
@pytest.mark.parametrize(
    "way",
    [_core, *(pytest.param(way, marks=pytest.mark.peer) for way in (_libcachesim, _ordered_dict, _floor))],
    ids=lambda way: way.__name__[1:],
)
def test_lru(benchmark, trace, tmp_path, way):
    run = way(trace, tmp_path)
    hits = benchmark(run)
    assert way is _floor or hits == _ordered_dict(trace, tmp_path)()
    benchmark.extra_info["accesses_per_second"] = round(trace.size / benchmark.stats.stats.median)


def _through_index(expert):
    layer, start = _events(len(expert))
    return replay(LAYERS, EXPERTS, SLOTS, layer, start, expert.ravel(), 0, "lru").hits


def _through_scores(expert, rules=None, **tasks):
    layer, start = _events(len(expert))
    step = np.repeat(np.arange(len(expert)), LAYERS)
    # The last use: the position of the event.
    scores = np.repeat(np.arange(len(layer), dtype=np.float32), TOP_K)
    loop = EventLoop(LAYERS, EXPERTS, SLOTS, rules)
    loop.feed(step, layer, start, expert.ravel(), accessed=scores, **tasks)
    return loop.counts().hits


def _with_prefetching(expert):
    following = np.concatenate([expert[1:], expert[:1]])
    confidence = np.broadcast_to(np.linspace(0.9, 0.3, TOP_K), following.shape)
    ranges = ((0, LAYERS // 2), (LAYERS // 2, LAYERS))
    rules = PrefetchRules(0.9, reserve="selection")
    return _through_scores(expert, rules, ranges=ranges, task_expert=following, task_confidence=confidence)


@pytest.mark.benchmark(group="LRU replay of 960,000 accesses in 240,000 events")
@pytest.mark.parametrize("way", [_through_index, _through_scores, _with_prefetching], ids=lambda way: way.__name__[1:])
def test_events(benchmark, trace, way):
    hits = benchmark(way, trace)
    if way is _with_prefetching:
        assert hits > _through_index(trace)
    else:
        assert hits == _through_index(trace)
    benchmark.extra_info["accesses_per_second"] = round(trace.size / benchmark.stats.stats.median)


def _resident_mib() -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.peer  # tells of memory; a comparison of times has its shorter form above
@pytest.mark.skipif(not STATUS.exists(), reason="reads the process's memory from /proc")
@pytest.mark.benchmark(group="LRU replay of a million tokens in blocks of 10,000")
def test_a_million_tokens(benchmark, trace):
    """96 million accesses, 366 MiB of experts as int32, of which 1 % is in memory at a time."""
    layer, start = _events(STEPS)

    def stream():
        run = Replay(LAYERS, EXPERTS, SLOTS, "lru")
        memory = []
        for index in range(MILLION // STEPS):
            run.feed(layer, start, np.roll(trace, index, axis=0).ravel())
            memory.append(_resident_mib())
        return run.counts().needed, memory

    needed, memory = benchmark.pedantic(stream, rounds=1)
    assert needed == MILLION * LAYERS * TOP_K
    benchmark.extra_info["mib_grown_after_the_second_block"] = round(memory[-1] - memory[1], 2)
