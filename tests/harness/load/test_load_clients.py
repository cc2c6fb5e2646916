"""Protects the clients: refusals are waited out and counted, broken answers are errors, and a dead server ends it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_server import Fake, fake_server

pytest.importorskip("openai", reason="openai is not installed; the dev extra has it")
pytest.importorskip("prometheus_client", reason="serve needs its extra")

from seqmoe.harness.load.clients import Client, Crowd
from seqmoe.harness.load.plan import Plan, Question
from seqmoe.harness.load.server import ServerProcess
from seqmoe.harness.load.watch import Watch, growth
from seqmoe.serve.metrics import Metrics
from seqmoe.serve.snapshot import Snapshot

QUESTIONS = [Question("a", 2), Question("b", 2)]
BROKEN = (200, {"Content-Type": "text/event-stream"}, 'data: {"error": {"message": "lost", "code": "x"}}\n\n')


def _crowd(fake: Fake, clients: int = 2) -> Crowd:
    return Crowd(fake.url, "fake", Plan(QUESTIONS, (), clients, 1, 1))


def _until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_answer_is_the_same_whole_and_streamed():
    with fake_server(Fake()) as fake, Client(fake.url, "fake", QUESTIONS) as client:
        begun = []
        whole, streamed = client.whole(1), client.streamed(1, lambda: begun.append(True))
    assert (whole.text, whole.tokens, whole.prompt_tokens, whole.reason) == ("right", 2, 3, "length")
    assert (streamed.text, streamed.tokens, streamed.prompt_tokens, streamed.reason) == ("right", 2, 3, "length")
    assert whole.first is None and streamed.began <= streamed.first <= streamed.ended and begun == [True]


def test_refusals_are_waited_out_and_counted():
    with fake_server(Fake()) as fake:
        fake.refuse(5)
        crowd = _crowd(fake)
        crowd.start()
        _until(lambda: fake.asked > 20)
        tally = crowd.finish()
    assert tally.refused == 5 and not tally.errors
    assert len(tally.answers) == fake.asked - 5


def test_every_client_asks_everything_in_an_order_of_its_own_that_comes_again():
    with fake_server(Fake()) as fake:
        orders = []
        for _ in range(2):
            crowd = Crowd(fake.url, "fake", Plan([Question(str(i), 2) for i in range(9)], (), 3, 1, 1, seed=7))
            drawn = [[next(order) for _ in range(18)] for order in map(crowd._order, range(3))]
            assert all(sorted(one[:9]) == sorted(one[9:]) == list(range(9)) for one in drawn)
            orders.append(drawn)
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]


def test_a_stream_that_breaks_off_is_an_error_and_the_client_goes_on():
    with fake_server(Fake(script=[BROKEN, (200, {"Content-Type": "text/event-stream"}, "data: [DONE]\n\n")])) as fake:
        crowd = Crowd(fake.url, "fake", Plan(QUESTIONS, (), 1, 1, 1))
        crowd._clients[0].whole = crowd._clients[0].streamed
        crowd.start()
        _until(lambda: fake.asked > 4)
        tally = crowd.finish()
    assert len(tally.errors) == 2 and "lost" in tally.errors[0] and "before the answer" in tally.errors[1]
    assert tally.answers


def test_clients_of_a_dead_server_give_up():
    with fake_server(Fake()) as fake:
        pass
    crowd = _crowd(fake)
    crowd.start()
    for thread in crowd._threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(crowd.finish().errors) == 6


def test_a_server_that_leaks_is_seen_to_grow():
    metrics = Metrics(Snapshot)
    leaking = "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**20)\n    time.sleep(0.01)"
    process = subprocess.Popen([sys.executable, "-c", leaking])
    try:
        with fake_server(Fake(metrics=lambda: metrics.text().decode())) as fake:
            with Watch(ServerProcess(fake.url, process, Path()), 0.02) as watch:
                _until(lambda: len(watch.samples()) > 30)
            samples = watch.samples()
    finally:
        process.kill()
        process.wait()
    before, after = growth(samples, samples[0].at, samples[-1].at)
    assert after - before > 10 * 2**20


def test_a_server_that_ends_is_not_taken_for_one_that_does_not_grow():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with fake_server(Fake()) as fake, Watch(ServerProcess(fake.url, process, Path()), 0.02) as watch:
        watch._thread.join(60)
        with pytest.raises(RuntimeError, match="could not be observed"):
            watch.samples()
