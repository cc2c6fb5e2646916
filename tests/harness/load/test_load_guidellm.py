"""Protects the comparison with GuideLLM, by a stand-in that is started as it is and writes its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openai", reason="openai is not installed; the dev extra has it")
pytest.importorskip("fastapi", reason="serve needs its extra")

from seqmoe.harness.load.guidellm import GuideLLMError, compare_with_guidellm, is_installed
from seqmoe.harness.load.plan import Plan, Question
from seqmoe.harness.load.server import served

STAND_IN = """\
import json, sys, time, urllib.request
given = sys.argv[1:]
assert given[:3] == ["-m", "guidellm", "run"], given
options = {name[2:]: json.loads(value) for name, value in zip(given[3::2], given[4::2]) if name != "--disable-console"}
backend, began, tokens, first = options["backend"], time.time(), 0, []
rows = [json.loads(line) for line in open(options["data"]["path"])]
assert len(rows) == options["constraint"]["count"]
for row in rows:
    body = {"model": backend["model"], "prompt": row["prompt"], "max_tokens": row["output_tokens_count"]}
    body |= {"ignore_eos": True}
    asked = urllib.request.Request(backend["target"] + "/v1/completions", json.dumps(body).encode(),
                                   {"Content-Type": "application/json"})
    sent = time.time()
    tokens += json.load(urllib.request.urlopen(asked))["usage"]["completion_tokens"]
    first.append(time.time() - sent)
ended = time.time()
done = lambda **value: {"successful": value}
metrics = {"request_totals": {"successful": len(rows), "errored": 0, "incomplete": 0},
           "output_token_count": done(total_sum=tokens - 1e-9),
           "output_tokens_per_second": done(mean=tokens / (ended - began)),
           "time_to_first_token_ms": done(mean=1e3 * sum(first) / len(first))}
told = {"start_time": began, "end_time": ended, "metrics": metrics}
json.dump({"benchmarks": [told]}, open(options["output"]["path"], "w"))
"""


@pytest.fixture
def plan(tiny_checkpoint):
    serve = ("--model", str(tiny_checkpoint), "--system", "lru", "--context", "256")
    return Plan([Question("one", 3), Question("two", 40)], serve, clients=2, seconds=3, batch=2)


def _stand_in(folder: Path, program: str) -> str:
    script, python = folder / "stand_in.py", folder / "python"
    script.write_text(program)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_its_numbers_stand_beside_the_servers_of_the_same_time(plan, tmp_path):
    python = _stand_in(tmp_path, STAND_IN)
    with served([*plan.serve, "--name", "tiny"]) as server:
        told = compare_with_guidellm(python, server, "tiny", plan, tmp_path, requests=5)
    assert told.requests == told.server_requests == 5 and told.errors == 0
    assert told.tokens == told.server_tokens == 3 + 40 + 3 + 40 + 3
    assert told.tok_s > 0 and told.server_tok_s > 0 and 0 < told.server_ttft < told.ttft


def test_a_failure_of_it_is_told_in_its_words(plan, tmp_path):
    python = _stand_in(tmp_path, "raise SystemExit('no such option')")
    with served([*plan.serve, "--name", "tiny"]) as server, pytest.raises(GuideLLMError, match="1: no such option"):
        compare_with_guidellm(python, server, "tiny", plan, tmp_path, requests=2)
    assert server.process.returncode is not None


def test_a_report_of_another_form_is_no_crash(plan, tmp_path):
    python = _stand_in(tmp_path, STAND_IN.replace('"end_time"', '"ended_at"'))
    with served([*plan.serve, "--name", "tiny"]) as server, pytest.raises(GuideLLMError, match="end_time"):
        compare_with_guidellm(python, server, "tiny", plan, tmp_path, requests=2)


def test_an_interpreter_is_asked_whether_it_has_it(tmp_path):
    assert not is_installed(_stand_in(tmp_path, "raise SystemExit(1)"))
    assert is_installed(_stand_in(tmp_path, ""))
    found = subprocess.run([sys.executable, "-c", "import guidellm"], capture_output=True, check=False).returncode == 0
    assert is_installed(sys.executable) is found
