"""Protects memory: a trace that is fed in blocks takes no more of it however long it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqmoe.core.simulate import EventLoop, PrefetchRules, Replay

LAYERS, EXPERTS, TOP_K, STEPS = 24, 32, 4, 500
STATUS = Path("/proc/self/status")


def resident_mib():
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def block(rng):
    expert = rng.random((STEPS, LAYERS, EXPERTS), dtype=np.float32).argpartition(TOP_K, axis=-1)[..., :TOP_K]
    layer = np.tile(np.arange(LAYERS, dtype=np.int32), STEPS)
    return layer, np.arange(STEPS * LAYERS + 1, dtype=np.int64) * TOP_K, expert.astype(np.int32).ravel()


def through_index():
    replay = Replay(LAYERS, EXPERTS, 192, "lru")
    return lambda index, arrays, rng: replay.feed(*arrays)


def through_loop():
    loop = EventLoop(LAYERS, EXPERTS, 192, PrefetchRules(0.9))

    def feed(index, arrays, rng):
        step = np.repeat(np.arange(index * STEPS, (index + 1) * STEPS), LAYERS)
        wanted = rng.integers(0, EXPERTS, (STEPS, LAYERS, TOP_K + 3)).astype(np.int32)
        scores = rng.random((STEPS, LAYERS, EXPERTS), dtype=np.float32)
        chance = rng.random(wanted.shape, dtype=np.float32)
        loop.feed(step, *arrays, used=scores, forecast=scores, ranges=((0, 12), (12, 24)), task_expert=wanted,
                  task_confidence=chance)  # fmt: skip

    return feed


@pytest.mark.skipif(not STATUS.exists(), reason="reads the process's memory from /proc")
@pytest.mark.parametrize("way", [through_index, through_loop])
def test_memory_is_flat_in_the_length_of_the_trace(way):
    feed, rng = way(), np.random.default_rng(0)
    for index in range(4):
        feed(index, block(rng), rng)
    before = resident_mib()
    for index in range(4, 36):
        feed(index, block(rng), rng)
    # The experts alone of these 32 blocks are 5.9 MiB as int32, and the scores 47 MiB each.
    assert resident_mib() - before < 4
