"""Protects long requests: blocks change no count, memory is that of a block, and no score outgrows float32."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from replay_samples import EXPERTS, LAYERS, Noise, traces

from seqmoe.core.simulate import replay
from seqmoe.simulate import blocks as module
from seqmoe.simulate import options as limits
from seqmoe.simulate.batch import batches, events_of
from seqmoe.simulate.blocks import Blocks
from seqmoe.simulate.policies.by_access import BY_ACCESS, places
from seqmoe.simulate.replay import ReplayOptions, replay_traces
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, RequestTrace, TraceSet


@pytest.mark.parametrize("contract", ["event", "sequential"])
@pytest.mark.parametrize("steps_in_a_block", [1, 7, 1000])
def test_blocks_change_no_count(monkeypatch, contract, steps_in_a_block) -> None:
    tiny, names = traces(seed=2, count=5, steps=60), ["lru", "lfu", "belady", "lfu_decay", "seqmoe"]
    choices = [ReplayOptions((0.7,), contract, warm_up=5)]
    if contract == "event":
        choices.append(ReplayOptions((0.7,), batch=2, stagger=3))
    for options in choices:
        whole = replay_traces(tiny, names, [0.4, 0.6], options, predictor=Noise())
        monkeypatch.setattr(module.Blocks.__init__, "__defaults__", (steps_in_a_block * LAYERS * EXPERTS,))
        assert replay_traces(tiny, names, [0.4, 0.6], options, predictor=Noise()) == whole
        monkeypatch.undo()


def test_blocks_together_are_the_batch() -> None:
    request = traces(count=1, steps=50).requests[0]
    request.experts[10:25, 1] = MISSING
    request.experts[30:40] = MISSING  # whole blocks without an event
    (batch,) = batches((request,), EXPERTS, warm_up=6)
    parts, whole = list(Blocks(batch, 4 * LAYERS * EXPERTS)), batch.events()
    assert np.concatenate([part.events.step for part in parts]).tolist() == whole.step.tolist()
    assert np.concatenate([part.events.expert for part in parts]).tolist() == whole.expert.tolist()
    assert {len(part.events.step) for part in parts} >= {0} and [part.counted for part in parts].index(True) > 1


@pytest.mark.parametrize("policy", BY_ACCESS)
def test_scores_are_exact_however_long_the_request_is(policy) -> None:
    # Times as of a request of 2^25 events: as float32 neighbours would be equal, and ties go by key.
    far = 2**25
    assert np.float32(far) == np.float32(far + 1)
    steps, keys, slots = 400, LAYERS * EXPERTS, 9
    (batch,) = batches((traces(seed=8, count=1, steps=steps).requests[0],), EXPERTS)
    blocks = Blocks(batch, 50 * keys)

    def read(index):
        key, time = blocks[index].events.accesses(LAYERS, EXPERTS, False)
        return key, time + far

    scores, resident, hits = BY_ACCESS[policy](keys, len(blocks), read), set(), 0
    for index in range(len(blocks)):
        key, time = read(index)
        before, accessed = places(*scores.values(index, (key, time)))
        now = dict(enumerate(before.tolist()))
        for when in np.unique(time):
            needed = key[time == when].tolist()
            hits += len(resident & set(needed))
            while len(resident | set(needed)) > slots:
                resident.remove(min(resident - set(needed), key=lambda key: (now[key], key)))
            resident |= set(needed)
            now |= dict(zip(needed, accessed[time == when].tolist(), strict=True))
    events = events_of(batch.requests[0])
    assert hits == replay(LAYERS, EXPERTS, slots, events.layer, events.start, events.expert, 0, policy).hits


def test_policies_on_arrays_refuse_what_is_too_long_for_them(monkeypatch) -> None:
    long = traces(count=1, steps=500)
    monkeypatch.setattr(limits, "_EXACT", 4000)
    replay_traces(long, ["lru", "lfu", "belady"], [0.5])
    with pytest.raises(
        InputError, match=r"500 steps is too long for the scores of mix, which are exact to 4,000.*split"
    ):
        replay_traces(long, ["lru", "mix"], [0.5], predictor=Noise())
    monkeypatch.setattr(limits, "_EXACT", 2**24)
    monkeypatch.setattr(limits, "_ARRAY_BYTES", 2**50)
    with pytest.raises(InputError, match=r"500 steps needs about .* GiB for lfu_decay"):
        replay_traces(long, ["lfu_decay"], [0.5])


def test_a_long_request_takes_the_memory_of_a_block(monkeypatch) -> None:
    layers, experts, k, steps = 4, 256, 2, 60_000
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, experts // 2, (steps, layers, 1), dtype=np.int16)
    request = RequestTrace(np.concatenate([chosen, chosen + experts // 2], axis=-1), np.full(steps, DECODE, np.uint8))
    long = TraceSet("long", layers, experts, k, (request,))
    monkeypatch.setattr(module.Blocks.__init__, "__defaults__", (2**18,))
    tracemalloc.start()
    try:
        replay_traces(long, ["lru", "lfu", "belady"], [0.25, 0.5])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Its scores as one array of float32 over the request are 234 MiB, its accesses as int64 3.7 MiB for each array.
    assert peak < 6 * 2**20
