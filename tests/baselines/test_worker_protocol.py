"""Protects the worker protocol: stdout is JSON only, a request ends in done or one error, counts are exact."""

from __future__ import annotations

import json
import re
import textwrap
import threading
from pathlib import Path

import pytest

from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Refusal, parse_request

ROOT = Path(__file__).parents[2]


@pytest.fixture
def worker(tmp_path):
    """Build a worker from the body of its handler."""

    def build(body):
        program = tmp_path / "worker.py"
        head = f"import sys, os\nsys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(
            """
            from baselines._shared.protocol import Refusal, serve
            from baselines._shared.clock import Token, run_prompts
            def handle(request, events):
            """
        )
        program.write_text(head + textwrap.indent(textwrap.dedent(body), "    ") + "\nsys.exit(serve(handle))\n")
        return program

    return build


COUNTING = """
    import time
    def generate(prompt, tokens):
        for index in range(tokens):
            yield Token(sum(prompt) + index, time.perf_counter_ns())
    events.ready()
    run_prompts(request, events, generate)
    events.missing("hit_rate", "none here")
"""


def test_a_request_becomes_events_in_order(worker, run_worker, request_table):
    events, _ = run_worker(worker(COUNTING), request_table)
    kinds = [event["event"] for event in events]
    assert kinds == ["ready", *(["request"] + ["token"] * 4) * 2, "stat", "stat", "stat", "done"]
    tokens = [(event["prompt"], event["token"]) for event in events if event["event"] == "token"]
    assert tokens == [(0, 6 + i) for i in range(4)] + [(1, 9 + i) for i in range(4)]
    times = [event["time_ns"] for event in events if "time_ns" in event]
    assert times == sorted(times)
    assert events[-4] == {"event": "stat", "name": "hit_rate", "missing": "none here"}
    assert events[-3] == {"event": "stat", "name": "threads", "value": 1}


def test_every_worker_tells_its_threads_and_numa_policy_whatever_its_system_tells(worker, run_worker, request_table):
    events, _ = run_worker(worker("events.ready()"), request_table | {"threads": 3})
    told = {event["name"]: event["value"] for event in events if event["event"] == "stat"}
    status = Path("/proc/self/status").read_text()
    assert told == {
        "threads": 3,
        "numa": {
            "policy": told["numa"]["policy"],
            "nodes": re.search(r"Mems_allowed_list:\s*(\S+)", status)[1],
            "cpus": re.search(r"Cpus_allowed_list:\s*(\S+)", status)[1],
        },
    }
    assert told["numa"]["policy"] in ("default", "local", "preferred", "interleave", "bind", "unknown")


def test_requests_are_served_in_order_until_the_end_of_input(worker, run_worker, request_table):
    second = request_table | {"prompts": [[100]], "decode_tokens": 1}
    events, _ = run_worker(worker(COUNTING), request_table, "\n", second)
    assert [event["event"] for event in events].count("done") == 2
    assert [event["token"] for event in events if event["event"] == "token"][-1] == 100


def test_what_libraries_print_does_not_reach_stdout(worker, run_worker, request_table):
    noisy = 'print("python")\nsys.stdout.flush()\nos.write(1, b"C library\\n")\nos.system("echo child")'
    events, errors = run_worker(worker(noisy), request_table)
    assert [event["event"] for event in events] == ["stat", "stat", "done"]
    assert {"python", "C library", "child"} <= set(errors.splitlines())


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ('raise Refusal("unsupported", "no GPU", "buy one")', "unsupported", "no GPU"),
        ('raise MemoryError("90 GB")', "oom", "host: 90 GB"),
        (
            'raise RuntimeError("CUDA out of memory. Tried 2 GiB")',
            "oom",
            "device: RuntimeError: CUDA out of memory. Tried 2 GiB",
        ),
        (
            'raise RuntimeError("out of memory in cudaHostAlloc")',
            "oom",
            "host_pinned: RuntimeError: out of memory in cudaHostAlloc",
        ),
        ("[][1]", "crash", "IndexError: list index out of range"),
    ],
)
def test_a_failure_ends_one_request_and_not_the_worker(worker, run_worker, request_table, body, kind, reason):
    events, errors = run_worker(worker(body), request_table, request_table)
    assert [(event["event"], event["kind"], event["reason"]) for event in events] == [("error", kind, reason)] * 2
    assert ("Traceback" in errors) == (kind == "crash" or "RuntimeError" in reason)


@pytest.mark.parametrize("emitted", [3, 5])
def test_another_number_of_tokens_is_invalid(worker, run_worker, request_table, emitted):
    body = f"""
        run_prompts(request, events, lambda prompt, tokens: [Token(None, 1)] * {emitted})
    """
    events, _ = run_worker(worker(body), request_table)
    assert events[-1]["kind"] == "invalid"
    assert f"{emitted} tokens came where 4 were asked for" in events[-1]["reason"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"promts": []}, "unknown key 'promts'"),
        ({"protocol": 2}, "protocol = 2"),
        ({"prompts": []}, "prompts must not be empty"),
        ({"prompts": [[]]}, "prompts must not be empty"),
        ({"decode_tokens": 0}, "decode_tokens and threads"),
        ({"device": "tpu"}, "device must be cpu or cuda"),
        ({"cell": {}}, "must have a residency"),
    ],
)
def test_a_bad_request_is_named(worker, run_worker, request_table, change, reason):
    events, _ = run_worker(worker(COUNTING), request_table | change)
    assert len(events) == 1
    assert events[0]["kind"] == "invalid"
    assert reason in events[0]["reason"]


def test_a_missing_key_and_bad_json_are_named(worker, run_worker, request_table):
    del request_table["threads"]
    events, _ = run_worker(worker(COUNTING), request_table, "{broken\n", "[1]\n")
    assert [event["kind"] for event in events] == ["invalid"] * 3
    assert "'threads' is missing" in events[0]["reason"]
    assert "not JSON" in events[1]["reason"]


class Recorder:
    """Stands in for Events."""

    def __init__(self):
        self.seen = []

    def request(self, prompt, time_ns):
        self.seen.append(("request", prompt))

    def token(self, prompt, token, time_ns):
        self.seen.append(("token", prompt))


def parsed(table):
    return parse_request(json.dumps(table))


def test_the_warm_up_runs_once_and_is_not_reported(request_table):
    calls, recorder = [], Recorder()

    def generate(prompt, tokens):
        calls.append(prompt)
        return [Token(1, 1)] * tokens

    run_prompts(parsed(request_table), recorder, generate)
    assert calls == [[1, 2, 3], [1, 2, 3], [4, 5]]
    assert recorder.seen.count(("token", 0)) == 4
    calls.clear()
    run_prompts(parsed(request_table | {"warmup": False}), recorder, generate)
    assert calls == [[1, 2, 3], [4, 5]]


def test_a_batch_runs_its_prompts_at_the_same_time(request_table):
    together = threading.Barrier(2, timeout=10)

    def generate(prompt, tokens):
        together.wait()
        return [Token(1, 1)] * tokens

    table = request_table | {"cell": {"residency": 1.0, "batch": 2}, "warmup": False}
    recorder = Recorder()
    run_prompts(parsed(table), recorder, generate)
    assert sorted(recorder.seen) == sorted([("request", i) for i in (0, 1)] + [("token", i) for i in (0, 1)] * 4)


def test_unknown_options_are_refused(request_table):
    with pytest.raises(Refusal, match="option 'turbo' is unknown") as refused:
        parsed(request_table | {"options": {"turbo": 1}}).only_options("expert_cache")
    assert refused.value.hint == "valid: expert_cache"
