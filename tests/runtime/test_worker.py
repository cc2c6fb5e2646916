"""Protects the worker protocol of our own runtime: one process, several requests, plain errors."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from seqmoe.runtime.emulation import LADDER
from seqmoe.spec.suite import Cell

CELL = Cell(
    suite="test", panel="p", system="lru", model="tiny", lane="emulated", residency=0.45, batch=1, dataset="d",
    prompts=2, decode_tokens=5, hardware="rtx4090",
)  # fmt: skip

PACE = {"layer_seconds": 170e-6, "expert_seconds": 190e-6}


def _request(checkpoint, **changed):
    cell = asdict(CELL) | changed.pop("cell", {})
    request = {
        "protocol": 1, "cell": cell, "model_path": str(checkpoint), "model_format": "hf",
        "prompts": [[5, 6, 7], [8, 9]],
        "decode_tokens": 5, "device": "cpu", "threads": 1, "options": {"pace": PACE},
    }  # fmt: skip
    return request | changed


@pytest.fixture(scope="module")
def answers(tiny_checkpoint, tmp_path_factory):
    """Events of several requests through one process, split at each request's end."""
    requests = [
        _request(tiny_checkpoint),
        _request(tiny_checkpoint, cell={"system": "full", "residency": 1.0}),
        _request(tmp_path_factory.mktemp("empty") / "absent"),
        _request(tiny_checkpoint, decode_token=3),
        _request(tiny_checkpoint, cell={"batch": 2}, prompts=[[5, 6, 7], [8, 9], [10, 11, 12, 13]]),
        _request(tiny_checkpoint, cell={"system": "seqmoe"}),
        _request(tiny_checkpoint, prompts=[[]]),
    ]
    run = subprocess.run(
        [sys.executable, "-m", "seqmoe.runtime.worker"],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    groups: list[list[dict]] = [[]]
    for line in run.stdout.splitlines():
        event = json.loads(line)
        groups[-1].append(event)
        if event["event"] in ("done", "error"):
            groups.append([])
    assert groups.pop() == []
    assert len(groups) == len(requests)
    return groups


def _stats(events):
    return {event["name"]: event["value"] for event in events if event["event"] == "stat"}


def test_one_timestamp_per_token_in_order(answers):
    for events in answers[:2]:
        for prompt in (0, 1):
            tokens = [event for event in events if event["event"] == "token" and event["prompt"] == prompt]
            times = [event["time_ns"] for event in tokens]
            assert len(tokens) == 5
            assert times == sorted(times)
            (request,) = [event for event in events if event["event"] == "request" and event["prompt"] == prompt]
            assert request["time_ns"] < times[0]


def test_times_are_those_of_the_imitated_hardware(answers):
    for events in answers[:2]:
        stats = _stats(events)
        for prompt in (0, 1):
            times = [e["time_ns"] for e in events if e["event"] == "token" and e["prompt"] == prompt]
            # Four steps of four layers at full load's pace; the rest is stall, or a machine that was late.
            assert (times[-1] - times[0]) / 1e9 >= 0.99 * 4 * 4 * 170e-6 * (1 - stats["overrun_share"])
        spent = sum(
            (times[-1] - times[0]) / 1e9
            for times in (
                [e["time_ns"] for e in events if e["event"] == "token" and e["prompt"] == prompt] for prompt in (0, 1)
            )
        )
        assert spent == pytest.approx(2 * 16 * stats["layer_seconds"] + stats["stall_seconds"], rel=0.1)


def test_offloaded_tokens_equal_full_loads(answers):
    tokens = [[event["token"] for event in events if event["event"] == "token"] for events in answers[:2]]
    assert tokens[0] == tokens[1]
    assert _stats(answers[0])["same_answer"] is True
    assert _stats(answers[0])["max_logit_difference"] == 0


def test_statistics_name_hits_bytes_and_the_link(answers):
    stats = _stats(answers[0])
    # Four decode steps after the first token, four layers, top-3, two prompts.
    assert stats["needed"] == 4 * 4 * 3 * 2
    assert stats["hit_rate"] == stats["hits"] / stats["needed"]
    assert stats["bytes_on_demand"] == stats["misses"] * 3 * 32 * 32 * 4 > 0
    assert stats["prefill_bytes"] > 0
    assert 0 <= stats["bytes_wasted"] <= stats["bytes_prefetched"]
    assert stats["overlap_ratio"] == pytest.approx(170 / 190)
    assert stats["dilation"] in LADDER and 0 <= stats["overrun_share"] <= 1
    assert stats["layer_seconds"] >= 170e-6 and stats["link_seconds_per_expert"] >= 190e-6
    assert stats["dilation"] == _stats(answers[1])["dilation"], "one factor for all systems of a comparison"
    assert _stats(answers[1])["hit_rate"] == 1


def test_threads_and_numa_policy_are_told_as_by_the_wrapped_systems_workers(answers):
    stats = _stats(answers[0])
    assert stats["threads"] == 1
    assert stats["numa"].keys() == {"policy", "nodes", "cpus"}
    (cpus,) = [
        line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "Cpus_allowed_l" in line
    ]
    assert stats["numa"]["cpus"] == cpus


def test_a_batch_decodes_together(answers):
    events = answers[4]
    assert events[-1]["event"] == "done"
    times = [[event["time_ns"] for event in events if event["event"] == "token" and event["prompt"] == prompt]
             for prompt in range(3)]  # fmt: skip
    assert times[0] == times[1]
    assert times[2][0] > times[1][-1]
    stats = _stats(events)
    assert stats["same_answer"] is True
    assert stats["max_logit_difference"] == 0
    # Two together need at most twice as many experts as one: 4 steps, 4 layers, top-3, and once more alone.
    assert 4 * 4 * 3 * 2 <= stats["needed"] <= 4 * 4 * 3 * 3
    assert "per_assignment_hit_rate" not in stats


@pytest.mark.parametrize(
    ("index", "kind", "reason"),
    [
        (2, "unsupported", "cannot be loaded"),
        (3, "invalid", "unknown key 'decode_token'; did you mean 'decode_tokens'?"),
        (5, "unsupported", "needs a predictor"),
        (6, "invalid", "no tokens"),
    ],
)
def test_errors_say_why(answers, index, kind, reason):
    last = answers[index][-1]
    assert (last["event"], last["kind"]) == ("error", kind)
    assert reason in last["reason"]
