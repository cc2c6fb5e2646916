"""Protects the device's side of the worker protocol: events of a whole request, counts of the decode steps alone."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace

import pytest
from device_models import PROMPT
from random_models import opened

from seqmoe.core.driver import CudaMissingError
from seqmoe.core.mapped_memory import PinningError
from seqmoe.runtime.cuda import serving
from seqmoe.runtime.cuda.device import HostDevice
from seqmoe.runtime.cuda.serving import CudaServer, execution_on_device
from seqmoe.runtime.protocol import parse_request
from seqmoe.runtime.worker import Worker
from seqmoe.spec.errors import InputError, OutOfMemoryError
from seqmoe.spec.suite import Cell
from seqmoe.spec.system import system

TOKENS = 4


def request(folder, name="lru", **changes):
    """One of a random OLMoE of 2 layers that replays its traces."""
    found = opened("olmoe", folder, requests=(0, 1), warm_up=2, layers=2)
    fields = {"routing": "replay", "weights": "random", "layers": 2} | changes
    cell = Cell("gpu", "p", name, "tiny", "measured", 0.5, 1, "traces", 2, TOKENS, **fields)
    return {
        "protocol": 1, "cell": asdict(cell), "model_path": "", "model_format": "hf", "prompts": [],
        "decode_tokens": TOKENS, "device": "cuda", "threads": 1, "random": asdict(found.random),
    }  # fmt: skip


def serve(server, table, spec):
    events = []
    server.run(parse_request(json.dumps(table)), spec, lambda **event: events.append(event))
    stats = {event["name"]: event.get("value", event.get("missing")) for event in events if event["event"] == "stat"}
    return events, stats


def test_a_request_becomes_events_and_its_counts_are_of_its_decode_steps(tmp_path) -> None:
    server = CudaServer(HostDevice())
    table = request(tmp_path)
    events, stats = serve(server, table, execution_on_device(system("lru"), ""))
    assert events[0] == {"event": "ready"} and events[-1] == {"event": "done"}
    assert [event["prompt"] for event in events if event["event"] == "token"] == [0] * TOKENS + [1] * TOKENS
    assert stats["same_answer"] is True and stats["execution"] == "graph" and stats["expert_format"] == "dense"
    # Two layers, three choices, three decode steps of each of two requests.
    assert stats["needed"] == 2 * 3 * 3 * 2 == stats["hits"] + stats["misses"]
    assert stats["bytes_on_demand"] == stats["misses"] * stats["expert_bytes"]
    assert stats["miss_copy_seconds_per_step"] > 0
    assert stats["resident_bytes"] == 12 * stats["expert_bytes"] and 0 < stats["hit_rate"] < 1
    engine = server._engine
    _, full = serve(server, table, execution_on_device(system("full"), "sync"))
    assert server._engine is engine, "the model is loaded once"
    assert "miss_copy_seconds_per_step" not in full
    assert full["hit_rate"] == 1.0 and full["execution"] == "sync" and full["same_answer"] is True
    server.close()


def test_a_device_too_small_for_full_load_has_no_answer_to_compare_with(tmp_path, monkeypatch) -> None:
    server = CudaServer(HostDevice())
    place, modes = serving.CudaEngine.place, []

    def small(self, spec, *arguments, **options):
        if spec.retention == "all":
            modes.append(spec.execution)
            raise OutOfMemoryError("device memory: experts 29 GiB")
        place(self, spec, *arguments, **options)

    monkeypatch.setattr(serving.CudaEngine, "place", small)
    table = request(tmp_path)
    _, stats = serve(server, table, execution_on_device(system("naive"), "sync"))
    assert stats["same_answer"] == "full load does not fit into the device's memory" and stats["hit_rate"] == 0
    with pytest.raises(InputError, match="'popularity' needs a profile of this model"):
        serve(server, table, execution_on_device(system("popularity"), ""))
    assert modes == ["sync", "graph"], "other modes round differently"
    server.close()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (CudaMissingError("no CUDA driver"), "unsupported", "no CUDA driver"),
        (PinningError("1.0 GiB of 29.0 GiB could be pinned"), "oom", "host_pinned: 1.0 GiB of 29.0"),
    ],
)
def test_a_machine_without_gpu_or_pinned_memory_is_told_apart(tmp_path, monkeypatch, error, kind, words) -> None:
    def device():
        raise error

    monkeypatch.setattr(serving, "GpuDevice", device)
    out = io.StringIO()
    Worker(out).serve(io.StringIO(json.dumps(request(tmp_path)) + "\n"))
    (event,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert event["event"] == "error" and event["kind"] == kind and words in event["reason"]


def test_predictors_of_a_cpu_and_unequal_prompts_are_refused(tmp_path) -> None:
    server = CudaServer(HostDevice())
    table = request(tmp_path, "seqmoe", predictor="previous")
    table["random"]["predictor"] = "previous"
    with pytest.raises(InputError, match=r"runs on a CPU only; the CUDA runtime takes one of kind"):
        serve(server, table, execution_on_device(system("seqmoe"), ""))
    with pytest.raises(InputError, match="leave `link` out"):
        serve(server, table | {"options": {"link_ratio": 0.9}}, execution_on_device(system("lru"), ""))
    with pytest.raises(InputError, match="prompts of different lengths"):
        serving._work([((1, 2), None), ((1,), None)])
    assert replace(system("lru"), execution="eager") == execution_on_device(system("lru"), "eager")
    assert len(PROMPT) == 4
    server.close()
