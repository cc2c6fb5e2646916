"""Protects the load test: a real server passes it, and whatever is planted into its outcome is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("openai", reason="openai is not installed; the dev extra has it")
pytest.importorskip("fastapi", reason="serve needs its extra")

from seqmoe.harness.load.__main__ import main, report
from seqmoe.harness.load.checks import faults
from seqmoe.harness.load.guidellm import Compared
from seqmoe.harness.load.plan import Plan, Question, varied_questions
from seqmoe.harness.load.run import run
from seqmoe.harness.load.server import served
from seqmoe.harness.load.table import table
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

QUESTIONS = [Question("once", 4), Question("def f(n):" * 9, 24), Question("12 + 35 = ", 12), Question("x", 6, "e")]
# Of three seconds on a busy machine, clocks and memory say nothing.
OF_TIME = ("mean ", "throughput", "memory", "GuideLLM")


def _lasting(found: list[str]) -> list[str]:
    return [fault for fault in found if not fault.startswith(OF_TIME)]


@pytest.fixture(scope="module")
def outcome(tiny_checkpoint):
    serve = ("--model", str(tiny_checkpoint), "--system", "lru", "--residency", "0.45", "--context", "256")
    said: list[str] = []
    plan = Plan(QUESTIONS, serve, clients=4, seconds=3, batch=2, seed=1)
    found = run(plan, "not asked for", said.append)
    assert len(said) == 3
    return found


def test_a_real_server_passes(outcome):
    assert _lasting(faults(outcome)) == []
    load, ending = outcome.load, outcome.ending
    assert {answer.question for answer in load.tally.answers} == set(range(len(QUESTIONS)))
    assert {answer.first is None for answer in load.tally.answers} == {True, False}
    assert load.counted.answered == load.counted.ttft.count == load.counted.lasted.count == len(load.tally.answers)
    assert (ending.running, ending.finished, ending.exit_code) == (2, 2, 0)
    assert load.tally.refused == 0  # four clients, of whom two wait, find room


def test_the_table_tells_both_sides(outcome):
    lines = table(outcome).splitlines()
    asked = str(len(outcome.load.tally.answers))
    answered = next(line.split() for line in lines if line.startswith("requests answered"))
    assert answered[-2:] == [asked, asked]
    assert any("left out: not asked for" in line for line in lines)
    assert any(line.split()[-2:] == ["shutting_down", "0"] for line in lines)


def test_a_wrong_answer_is_reported(outcome, capsys):
    load = outcome.load
    expected = [replace(load.expected[0], text="something else"), *load.expected[1:]]
    planted = replace(outcome, load=replace(load, expected=expected))
    assert len(planted.load.wrong) == sum(answer.question == 0 for answer in load.tally.answers)
    assert report(planted) == 1
    assert "alone it gets 'something else'" in capsys.readouterr().out


def test_an_answer_of_another_length_is_wrong_even_if_its_text_is_not(outcome):
    load = outcome.load
    expected = [replace(load.expected[0], tokens=3), *load.expected[1:]]
    assert replace(load, expected=expected).wrong


def test_a_leak_is_reported(outcome):
    load, first = outcome.load, outcome.load.samples[0]
    for share, found in ((0.015, False), (0.05, True)):
        growing = [
            replace(sample, resident=int(10**9 * (1 + share * (sample.at - first.at) / 3))) for sample in load.samples
        ]
        told = [fault for fault in faults(replace(outcome, load=replace(load, samples=growing))) if "memory" in fault]
        assert bool(told) is found


@pytest.mark.parametrize("name", ["tokens", "prompt_tokens"])
def test_a_count_that_disagrees_is_reported(outcome, name):
    counted = replace(outcome.load.counted, **{name: getattr(outcome.load.counted, name) + 1})
    (fault,) = _lasting(faults(replace(outcome, load=replace(outcome.load, counted=counted))))
    assert fault.startswith("tokens") and "/metrics" in fault


def test_requests_that_only_the_server_knows_are_reported(outcome):
    counted = outcome.load.counted
    for outcome_name, text in (("cancelled", "'cancelled': 1"), ("refused_full", "429 answers: clients count 0")):
        requests = {**counted.requests, outcome_name: 1.0}
        planted = replace(outcome.load, counted=replace(counted, requests=requests))
        (fault,) = _lasting(faults(replace(outcome, load=planted)))
        assert text in fault


def test_times_and_rates_that_disagree_are_reported(outcome):
    counted = outcome.load.counted
    late = replace(counted, ttft=replace(counted.ttft, total=counted.ttft.total + 100 * counted.ttft.count))
    assert any(
        fault.startswith("mean TTFT") for fault in faults(replace(outcome, load=replace(outcome.load, counted=late)))
    )
    answers = outcome.load.tally.answers * 10
    busier = replace(outcome.load, tally=replace(outcome.load.tally, answers=answers))
    assert any(fault.startswith("throughput") for fault in faults(replace(outcome, load=busier)))


def test_errors_refusals_and_a_failing_log_are_reported(outcome):
    tally = replace(outcome.load.tally, errors=["APIError: broke off"] * 5, refused=2)
    planted = replace(outcome, load=replace(outcome.load, tally=tally), complaints=["the server's log: ERROR"])
    found = faults(planted)
    for text in ("broke off", "5 requests failed", "2 requests were refused", "log: ERROR"):
        assert any(text in fault for fault in found)


def test_guidellms_numbers_must_be_the_servers(outcome):
    same = Compared(9, 0, 90, 100.0, 1.0, 9, 90, 99.0, 0.99)
    assert not [fault for fault in faults(replace(outcome, guidellm=same)) if "GuideLLM" in fault]
    for change in ({"tokens": 91}, {"requests": 8}, {"errors": 1}, {"tok_s": 80.0}, {"ttft": 1.5}):
        assert any("GuideLLM" in fault for fault in faults(replace(outcome, guidellm=replace(same, **change))))


def test_a_failing_guidellm_is_reported_with_all_that_was_measured_before(tiny_checkpoint, tmp_path):
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho no such option; exit 3\n")
    failing.chmod(0o755)
    serve = ("--model", str(tiny_checkpoint), "--system", "lru", "--context", "256")
    found = run(Plan(QUESTIONS, serve, clients=2, seconds=1, batch=2), (str(failing), tmp_path), lambda line: None)
    assert "guidellm ended with 3: no such option" in faults(found)
    assert "left out: it failed" in table(found) and found.ending.exit_code == 0


def test_an_end_that_loses_answers_is_reported(outcome):
    bad = replace(outcome.ending, finished=1, refused="an answer", exit_code=None)
    assert [fault[:8] for fault in _lasting(faults(replace(outcome, ending=bad)))] == ["SIGTERM:"] * 3


def test_questions_vary_and_come_again_by_their_seed():
    home = find_home(Path(__file__))
    questions = varied_questions(home, 3)
    assert questions == varied_questions(home, 3) != varied_questions(home, 4)
    assert len({question.prompt for question in questions}) == len(questions)
    assert len({question.tokens for question in questions}) == 5
    assert {question.stop for question in questions} == {None, "\n"}


@pytest.mark.parametrize("change", [{"clients": 0}, {"seconds": 0.5}, {"batch": 0}])
def test_a_plan_that_cannot_be_is_refused(change):
    with pytest.raises(InputError, match=f"--{next(iter(change))}"):
        Plan(QUESTIONS, (), **({"clients": 1, "seconds": 3, "batch": 1} | change))
    (name, value) = next(iter(change.items()))
    assert main([f"--{name}", str(value)]) == 2


def test_a_server_that_does_not_begin_says_why():
    with pytest.raises(RuntimeError, match="nosuchmodel"), served(["--model", "nosuchmodel"]):
        pass


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_no_process(number):
    command = [sys.executable, "-m", "seqmoe.harness.load", "--clients", "2", "--seconds", "600"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as test:
        try:
            assert any("2 clients" in line for line in test.stderr)
            (server,) = _children(test.pid)
            test.send_signal(number)
            assert test.wait(60) == 130
        finally:
            test.kill()
    assert not Path(f"/proc/{server}").exists()
