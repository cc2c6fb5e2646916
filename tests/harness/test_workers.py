"""A worker that misbehaves is told from one that answers, and none of its processes is left, whatever it does."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from harness_samples import cell, eventually, processes_with

from seqmoe.harness.workers import WorkerCrashed, WorkerHung, WorkerProcess

FAKE = Path(__file__).with_name("fake_worker.py")


@pytest.fixture
def start(tmp_path):
    """Start fake workers marked with this test's folder, and check afterwards that none is left."""
    started = []

    def run(behaviour="ok", **options):
        plan = json.dumps({"lru": behaviour, **options})
        worker = WorkerProcess([sys.executable, str(FAKE), plan, str(tmp_path)], grace=0.5)
        started.append(worker)
        return worker

    yield run
    for worker in started:
        worker.kill()
    assert processes_with(str(tmp_path)) == []


def request(prompts=2, decode_tokens=4, width=3):
    point = cell(prompts=prompts, decode_tokens=decode_tokens)
    ids = [[number] * width for number in range(1, prompts + 1)]
    return {"cell": asdict(point), "prompts": ids, "decode_tokens": decode_tokens}


def test_it_answers_several_requests_in_one_process(start) -> None:
    worker = start()
    for _ in range(3):
        events = list(worker.request(request(), timeout=30))
        assert [e["event"] for e in events].count("token") == 8
        assert events[0]["event"] == "ready" and events[-1]["event"] == "done"
    assert worker.alive
    worker.close()
    assert not worker.alive


def test_a_request_larger_than_a_pipe_arrives_whole(start) -> None:
    events = list(start().request(request(prompts=1, width=400_000), timeout=60))
    assert events[-1]["event"] == "done"
    assert events[2]["token"] == 400_000 % 100


def test_an_error_event_ends_the_request_and_not_the_worker(start) -> None:
    worker = start("unsupported")
    for _ in range(2):
        assert list(worker.request(request(), timeout=30))[-1]["kind"] == "unsupported"
    assert worker.alive


def test_a_crash_says_its_exit_code_and_its_last_words(start) -> None:
    with pytest.raises(WorkerCrashed) as caught:
        list(start("crash").request(request(), timeout=30))
    assert "exit code 1" in caught.value.reason and "the last words" in caught.value.tail


def test_a_killed_worker_says_which_signal(start) -> None:
    with pytest.raises(WorkerCrashed, match="SIGKILL"):
        list(start("killed").request(request(), timeout=30))


@pytest.mark.parametrize(("behaviour", "words"), [("garbage", "Loading weights"), ("mute", "closed its stdout")])
def test_a_worker_that_breaks_the_protocol_is_ended(start, behaviour, words) -> None:
    worker = start(behaviour)
    with pytest.raises(WorkerCrashed, match=words):
        list(worker.request(request(), timeout=30))
    assert not worker.alive


def test_words_after_the_end_of_a_request_are_not_taken_for_the_next_answer(start) -> None:
    worker = start("talkative")
    list(worker.request(request(), timeout=30))
    time.sleep(0.3)
    with pytest.raises(WorkerCrashed, match="after the end of a request"):
        next(worker.request(request(), timeout=30))


@pytest.mark.parametrize("behaviour", ["hang", "stubborn", "endless"])
def test_a_hang_ends_with_the_whole_group_even_if_it_ignores_termination(start, tmp_path, behaviour) -> None:
    worker = start(behaviour)
    with pytest.raises(WorkerHung, match=r"after 1\.5 s"):
        list(worker.request(request(), timeout=1.5))
    assert not worker.alive
    assert processes_with(str(tmp_path)) == []


def test_a_child_that_outlives_its_worker_is_ended_with_it(start, tmp_path) -> None:
    worker = start("stubborn")
    events = worker.request(request(), timeout=30)
    assert [next(events)["event"], next(events)["event"]] == ["ready", "stat"]
    assert eventually(lambda: len(processes_with(str(tmp_path), seconds=0)) == 2)
    os.kill(worker.pid, 9)
    with pytest.raises(WorkerCrashed):
        next(events)
    assert processes_with(str(tmp_path)) == []


def test_closing_waits_for_a_good_end_and_forces_one_that_does_not_come(start) -> None:
    lingering = start(lingers=True)
    list(lingering.request(request(), timeout=30))
    lingering.close(patience=0.3)
    assert not lingering.alive


def test_an_exception_in_the_context_ends_the_worker(start, tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt), start("hang") as worker:
        for _ in worker.request(request(), timeout=30):
            raise KeyboardInterrupt
    assert processes_with(str(tmp_path)) == []


def test_the_thread_count_reaches_the_worker() -> None:
    script = "import os, json; input(); print(json.dumps({'event': 'done', 'n': os.environ['OMP_NUM_THREADS']}))"
    with WorkerProcess([sys.executable, "-c", script], threads=3) as worker:
        assert list(worker.request({}, timeout=30)) == [{"event": "done", "n": "3"}]


def test_a_command_that_does_not_exist_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        WorkerProcess(["/nowhere/python"])
