"""Protects the sequential contract: hit counts equal libCacheSim's, another library, on the routing of a real model.

Its LFU forgets an expert's count when the expert is evicted, so it is compared with the policy that does so too; ties
go to the least recently used in both. Belady's ties are between experts that never come back, and change no count.
"""

from __future__ import annotations

import numpy as np
import pytest
from peer_cachesim import PEERS, hits_of, open_trace, write_trace

from seqmoe.core.simulate import replay

pytest.importorskip("libcachesim", reason="libcachesim is not installed; the dev extra has it")

LAYERS, EXPERTS, TOP_K, TOKENS = 24, 32, 4, 8000


def arrays_of(expert):
    steps, layers, top_k = expert.shape
    layer = np.tile(np.arange(layers, dtype=np.int32), steps)
    start = np.arange(steps * layers + 1, dtype=np.int64) * top_k
    return layer, start, np.ascontiguousarray(expert.reshape(-1))


@pytest.fixture(scope="module")
def routing(real_data):
    """The first 8,000 decode tokens of GPT-OSS-20B, int32 [tokens, layers, top_k], as one sequence."""
    with np.load(real_data / "traces" / "gpt-oss-20b.npz") as file:
        return file["experts"][:TOKENS].astype(np.int32)


@pytest.fixture(scope="module")
def reader(routing, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "routing.bin"
    write_trace(path, (routing + np.arange(LAYERS)[None, :, None] * EXPERTS).ravel())
    return open_trace(path)


@pytest.mark.parametrize("residency", [0.15, 0.25, 0.35, 0.45])
@pytest.mark.parametrize("policy", PEERS)
def test_hits_are_identical(routing, reader, policy, residency):
    slots = round(residency * LAYERS * EXPERTS)
    counts = replay(LAYERS, EXPERTS, slots, *arrays_of(routing), 0, policy, sequential=True)
    assert counts.needed == routing.size
    assert counts.hits == hits_of(reader, policy, slots, routing.size)


@pytest.mark.parametrize("policy", PEERS)
def test_hits_are_identical_on_a_small_trace(policy, tmp_path):
    expert = np.argsort(np.random.default_rng(0).random((300, 2, 6)), axis=-1)[..., :3].astype(np.int32)
    write_trace(tmp_path / "small.bin", (expert + np.arange(2)[None, :, None] * 6).ravel())
    for slots in (1, 2, 5, 11, 12):
        counts = replay(2, 6, slots, *arrays_of(expert), 0, policy, sequential=True)
        assert counts.hits == hits_of(open_trace(tmp_path / "small.bin"), policy, slots, expert.size)
