"""Protects the decode step of the CUDA runtime on a CPU: full load's tokens at every residency, and no look at a value.

The kernels are interpreted, the prefetch worker is the real one over a copy in memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from device_models import LENGTH, PROMPT, TOKENS, mamba2, tiny_checkpoint
from test_sync_free import Watched

from seqmoe.core.control import POSITION
from seqmoe.core.slots import FETCH
from seqmoe.runtime.cuda.capture import CaptureError, warm_up
from seqmoe.runtime.cuda.device import HostDevice
from seqmoe.runtime.cuda.engine import CudaEngine
from seqmoe.runtime.cuda.loading import load_on
from seqmoe.runtime.cuda.soak import slope, soak
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.retention import Offline
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import system

# A host pool that is pinned would be copied to a device: there, this is a copy that a graph cannot hold.
COPIES_FROM_HOST = {"lift_fresh", "lift_fresh_copy"}


def graph(name):
    return replace(system(name), execution="graph")


@pytest.fixture(scope="module", params=["qwen3_moe", "gpt_oss"])
def loaded(request, tmp_path_factory):
    """An engine, and the tokens of the CPU runtime's full load, whose experts are C++."""
    torch.set_num_threads(1)
    checkpoint = tiny_checkpoint(request.param, tmp_path_factory.mktemp(request.param))
    reference = Engine(checkpoint)
    reference.place_full()
    answer = reference.generate(PROMPT, TOKENS, keep_logits=True)
    engine = CudaEngine(load_on(checkpoint, HostDevice()), HostDevice())
    engine.place(graph("full"), 1.0, length=LENGTH)
    (full,) = engine.generate([PROMPT], TOKENS, keep_logits=True)
    yield engine, full, answer
    engine.close()


def _least(engine):
    return engine.geometry.least_slots() / engine.geometry.total_experts


def test_full_load_says_what_the_cpu_runtime_says(loaded) -> None:
    _, full, answer = loaded
    assert full.tokens == answer.tokens
    assert torch.allclose(torch.stack(full.logits), torch.stack(answer.logits), atol=1e-4)


@pytest.mark.parametrize("residency", [1.0, 0.45, 0.0])
def test_a_slot_pool_of_any_size_gives_full_loads_logits(loaded, residency) -> None:
    engine, full, _ = loaded
    engine.place(graph("seqmoe"), max(residency, _least(engine)), mamba2(engine.geometry), length=LENGTH)
    (result,) = engine.generate([PROMPT], TOKENS, keep_logits=True)
    assert result.tokens == full.tokens
    assert torch.equal(torch.stack(result.logits), torch.stack(full.logits))
    counts = engine.placement.statistics()
    events = engine.geometry.layers * (LENGTH - 1)
    assert counts["events"] == events and counts["hits"] + counts["misses"] == events * engine.geometry.top_k
    assert counts["unplaced"] == 0 and engine.placement.control.words[POSITION] == events - 1
    if residency == 0.45:
        assert counts["tasks"] > 0 and counts["worker_landed"] > 0 and counts["landed"] > 0


@pytest.mark.parametrize("loaded", ["gpt_oss"], indirect=True)
@pytest.mark.parametrize(
    ("name", "mode"), [("lru", "graph"), ("naive", "sync"), ("seqmoe_tail", "sync"), ("lfu", "eager")]
)
def test_other_systems_and_modes_give_full_loads_tokens(loaded, name, mode) -> None:
    engine, full, _ = loaded
    spec = replace(system(name), execution=mode)
    engine.place(spec, 0.4, mamba2(engine.geometry), length=LENGTH)
    (result,) = engine.generate([PROMPT], TOKENS, keep_logits=True)
    assert result.tokens == full.tokens
    assert torch.allclose(torch.stack(result.logits), torch.stack(full.logits), atol=1e-4)
    counts = engine.placement.statistics()
    if name == "naive":
        assert counts["hits"] == 0 and counts["misses"] == counts["events"] * engine.geometry.top_k
    else:
        assert counts["hits"] > 0


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
@pytest.mark.parametrize("kernel", ["grouped_mm", "batched_mm"])
def test_a_librarys_kernel_computes_through_the_same_slots(loaded, kernel) -> None:
    engine, full, _ = loaded
    engine.place(graph("lru"), 0.45, length=LENGTH, kernel=kernel)
    (result,) = engine.generate([PROMPT], TOKENS, keep_logits=True)
    assert result.tokens == full.tokens
    assert torch.allclose(torch.stack(result.logits), torch.stack(full.logits), atol=1e-4)


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_an_answer_that_lacks_an_expert_is_an_error(loaded) -> None:
    engine, *_ = loaded
    engine.place(graph("lru"), _least(engine), length=LENGTH)
    # No slot is free to be evicted: as if too many had been lent.
    engine.placement.table.state[:] = FETCH
    with pytest.raises(RuntimeError, match="found no slot"):
        engine.generate([PROMPT], 1)


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_a_second_request_starts_afresh_on_a_warm_pool(loaded) -> None:
    engine, full, _ = loaded
    engine.place(graph("lru"), 1.0, length=LENGTH)
    first = engine.generate([PROMPT], TOKENS, keep_logits=True)
    before = engine.placement.statistics()["misses"]
    again = engine.generate([PROMPT], TOKENS, keep_logits=True)
    assert first[0].tokens == again[0].tokens == full.tokens
    assert torch.equal(torch.stack(again[0].logits), torch.stack(full.logits))
    assert engine.placement.statistics()["misses"] == before, "everything it needs was there"


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_nothing_in_a_step_waits_for_a_value_nor_moves(loaded) -> None:
    """What a capture needs: no hidden look at a value, no tensor made of numbers of the host, a cache that stays."""
    engine, _, _ = loaded
    engine.place(graph("seqmoe"), 0.45, mamba2(engine.geometry), length=LENGTH)
    addresses = warm_up(engine.step)
    watched = Watched()
    allowed = _interpreter_only(watched)
    engine.placement.before_step()
    with watched, allowed:
        engine.step.run()
    assert len(watched.names) > 100
    assert not watched.found and not COPIES_FROM_HOST & set(watched.names)
    assert engine.step.addresses == addresses


class _interpreter_only:
    """Launches are left out of the watch: on a GPU they are launches, and here a program in Python that looks."""

    def __init__(self, watched) -> None:
        self._watched = watched

    def __enter__(self):
        from seqmoe.runtime.kernels.call import Call

        self._launch, watched = Call.launch, self._watched

        def launch(call):
            names, found = list(watched.names), list(watched.found)
            self._launch(call)
            watched.names[:], watched.found[:] = names, found

        Call.launch = launch

    def __exit__(self, *_):
        from seqmoe.runtime.kernels.call import Call

        Call.launch = self._launch


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_the_watch_sees_a_step_in_sync_mode_look(loaded) -> None:
    engine, _, _ = loaded
    engine.place(replace(system("lru"), execution="sync"), 0.45, length=LENGTH)
    watched = Watched()
    engine.placement.before_step()
    with watched, _interpreter_only(watched):
        engine.step.run()
    assert "item" in watched.found


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_a_cache_that_moves_is_no_cache_for_a_graph(loaded, monkeypatch) -> None:
    engine, _, _ = loaded
    engine.place(graph("full"), 1.0, length=LENGTH)
    run = engine.step.run

    def moving():
        run()
        layer = engine.step._cache.layers[0]
        layer.keys = layer.keys.clone()

    monkeypatch.setattr(engine.step, "run", moving)
    with pytest.raises(CaptureError, match="its cache moves from step to step"):
        warm_up(engine.step)


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_what_is_not_placed_for_or_not_done_is_refused(loaded) -> None:
    engine, _, _ = loaded
    with pytest.raises(InputError, match="takes prompts token by token"):
        engine.place(graph("prefill_hot"), 0.5)
    with pytest.raises(RuntimeError, match="no system is placed yet"):
        engine.advance()
    engine.place(graph("full"), 1.0, length=LENGTH)
    for prompts, tokens, words in (
        ([PROMPT, PROMPT], 1, "1 of one length, at least 1, were placed for"),
        ([[]], 1, "at least 1"),
        ([PROMPT], 6, "9 were placed for"),
    ):
        with pytest.raises(ValueError, match=words):
            engine.generate(prompts, tokens)
    with pytest.raises(ValueError, match="given to an engine that was made for them"):
        engine.generate([PROMPT], 1, replays=[])
    with pytest.raises(ValueError, match="needs the popularity"):
        engine.place(graph("popularity"), 0.5, offline=Offline())


@pytest.mark.parametrize("loaded", ["qwen3_moe"], indirect=True)
def test_memory_is_looked_at_as_steps_go_by(loaded) -> None:
    engine, _, _ = loaded
    engine.place(graph("full"), 1.0, length=LENGTH)
    grown = iter(range(100, 1000, 7))
    assert soak(engine.advance, lambda: 5, 4, looks=2) == [5, 5]
    assert slope([5, 5, 5]) == 0 and slope([next(grown) for _ in range(9)]) == pytest.approx(7)
    assert np.isfinite(slope([1, 2]))
    with pytest.raises(InputError, match="take at least 2"):
        slope([1])
