"""Protects the running batch: bounded, fair to who waits, rid of who is gone, and alive after an error."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from seqmoe.runtime.batching import BatchSession
from seqmoe.serve.limits import Limits
from seqmoe.serve.snapshot import Snapshot, Throughput


@pytest.fixture
def held(monkeypatch):
    """Steps wait until the event is set; it tells when one has begun."""
    go, begun, step = threading.Event(), threading.Event(), BatchSession.step

    def wait(self):
        if self.members:
            begun.set()
            go.wait(60)
        return step(self)

    monkeypatch.setattr(BatchSession, "step", wait)
    yield go, begun
    go.set()


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_eight_at_once_each_get_the_answer_they_get_alone(served):
    prompts = [f"{'a prompt ' * number}{number}" for number in range(8)]
    how = [{"max_tokens": 6 + 3 * number, "seed": number, "temperature": number % 3 / 2} for number in range(8)]
    alone = [served.complete(prompt, **options).json() for prompt, options in zip(prompts, how, strict=True)]
    with ThreadPoolExecutor(8) as clients:
        for _ in range(2):
            together = list(
                clients.map(lambda pair: served.complete(pair[0], **pair[1]).json(), zip(prompts, how, strict=True))
            )
            assert [each["choices"] for each in together] == [each["choices"] for each in alone]
            assert [each["usage"] for each in together] == [each["usage"] for each in alone]


def test_beyond_the_queue_it_says_when_to_come_again(serve_with, held):
    go, begun = held
    with serve_with(limits=Limits(batch=1, queue=2, context=64)) as server, ThreadPoolExecutor(3) as clients:
        answers = [clients.submit(server.complete, "x") for _ in range(3)]
        begun.wait(60)
        _until(lambda: len(server.scheduler._waiting) == 2)
        refused = server.complete("x")
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        go.set()
        assert [answer.result().status_code for answer in answers] == [200] * 3
        assert server.complete("x").status_code == 200


def test_who_goes_away_frees_the_place(serve_with, held):
    go, begun = held
    with serve_with(limits=Limits(batch=1, queue=1, context=512)) as server:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 400, "ignore_eos": True}
        for stream in (True, False):
            begun.clear()
            go.clear()
            with ThreadPoolExecutor(1) as clients:
                impatient = clients.submit(
                    httpx.post, f"{server.url}/v1/completions", json=body | {"stream": stream}, timeout=1
                )
                begun.wait(60)
                with pytest.raises(httpx.TimeoutException):
                    impatient.result()
            go.set()
            _until(lambda: server.scheduler.idle)
        assert 'outcome="cancelled"} 2.0' in server.client.get("/metrics").text
        assert server.complete("x").status_code == 200


def test_who_waits_and_goes_away_is_never_computed(serve_with, held):
    go, begun = held
    with serve_with(limits=Limits(batch=1, queue=1, context=64)) as server, ThreadPoolExecutor(1) as clients:
        first = clients.submit(server.complete, "x")
        begun.wait(60)
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/completions", json={"model": "tiny", "prompt": "x"}, timeout=0.5)
        go.set()
        assert first.result().status_code == 200
        _until(lambda: server.scheduler.idle)
        assert "seqmoe_prompt_tokens_total 1.0" in server.client.get("/metrics").text


def test_a_request_has_its_time(serve_with, held):
    go, begun = held
    with serve_with(limits=Limits(batch=1, queue=1, context=64, request_seconds=1)) as server:
        with ThreadPoolExecutor(2) as clients:
            answers = [clients.submit(server.complete, "x") for _ in range(2)]
            begun.wait(60)
            _until(lambda: server.scheduler._waiting)
            time.sleep(1.1)
            go.set()
            for answer in answers:
                assert answer.result().status_code == 504
                assert answer.result().json()["error"]["code"] == "request_timeout"
        # However busy the machine is.
        server.scheduler.limits = replace(server.scheduler.limits, request_seconds=600)
        assert server.complete("x").status_code == 200


def test_an_error_in_a_step_fails_its_requests_and_no_others(serve_with, monkeypatch, caplog):
    with serve_with() as server:
        expected = server.complete("abc").json()["choices"]
        with monkeypatch.context() as patch:
            patch.setattr(type(server.scheduler._session.engine.router), "compute_together", lambda *_: 1 / 0)
            failed = server.complete("abc")
            streamed = server.complete("abc", stream=True)
        assert failed.status_code == 500
        assert failed.json()["error"]["code"] == "internal_error"
        assert '"internal_error"' in streamed.text
        assert "[DONE]" not in streamed.text
        assert "ZeroDivisionError" in caplog.text
        assert server.complete("abc").json()["choices"] == expected


def test_a_drain_finishes_what_runs_and_refuses_the_rest(serve_with, held):
    go, begun = held
    with serve_with(limits=Limits(batch=1, queue=4, context=64)) as server, ThreadPoolExecutor(2) as clients:
        runs = clients.submit(server.complete, "x")
        begun.wait(60)
        waits = clients.submit(server.complete, "x")
        _until(lambda: server.scheduler._waiting)
        server.scheduler.drain()
        for refused in (waits.result(), server.complete("x")):
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "shutting_down"
            assert "retry-after" in refused.headers
        assert server.client.get("/health").status_code == 503
        assert not server.scheduler.idle
        go.set()
        assert runs.result().json()["usage"]["completion_tokens"] == 12
        assert server.scheduler.idle


def test_an_abort_tells_who_was_being_answered(serve_with, held):
    go, begun = held
    with serve_with(limits=Limits(batch=1, queue=1, context=64)) as server, ThreadPoolExecutor(2) as clients:
        runs, streams = clients.submit(server.complete, "x"), clients.submit(server.complete, "x", stream=True)
        begun.wait(60)
        server.scheduler.abort()
        go.set()
        for refused in (runs.result(), streams.result()):
            assert "shutting_down" in refused.text
            assert "[DONE]" not in refused.text
        _until(lambda: server.scheduler.idle)


def test_throughput_counts_tokens_in_the_window():
    rate = Throughput()
    for second in range(20):
        rate.add(float(second), 5)
    assert rate.rate(19.0) == pytest.approx(5.0)
    assert rate.rate(100.0) == 0


def test_what_was_not_measured_is_not_zero():
    assert Snapshot(offloaded=True).hit_rate is None
    assert Snapshot(offloaded=False).hit_rate == 1
    assert Snapshot(offloaded=True, decode={"needed": 4, "hits": 3}).hit_rate == 0.75


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"queue": -1}, {"request_seconds": 0}, {"body_bytes": 0}])
def test_impossible_limits_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)
