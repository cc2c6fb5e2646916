"""Protects `seqmoe trace collect`: its JSON, what prompts it takes, and how it refuses."""

from __future__ import annotations

import json

import pytest

from seqmoe.traces.source import digest, load_traces


@pytest.fixture
def collecting(seqmoe, tmp_path, tiny_checkpoint):
    """Run `seqmoe trace collect` on the tiny model; returns exit code, stdout, stderr."""

    def run(prompts, *more, model=tiny_checkpoint):
        given = ["--model", str(model), "--prompts", str(prompts), "--out", str(tmp_path / "store"), "--tokens", "4"]
        return seqmoe("trace", "collect", *given, "--engine", "transformers", *more)

    return run


def test_a_file_of_prompts(collecting, tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n')
    code, out, err = collecting(file, "--samples", "2", "--limit", "2", "--no-early", "--json")
    found = json.loads(out.splitlines()[-1])
    traces = load_traces(tmp_path / "store")
    assert code == 0
    assert (found["requests"], found["written"], found["layers"], found["experts"]) == (4, 4, 4, 12)
    assert found["digest"] == digest(traces)
    assert found["tokens"] == sum(len(request.experts) for request in traces.requests)
    assert found["decode_tokens"] == sum(request.decode_steps for request in traces.requests)
    assert [request.identifier for request in traces.requests][:3] == ["mine-00001/0", "mine-00001/1", "mine-00002/0"]
    assert traces.requests[0].early is None
    assert "collecting" in err
    again = json.loads(collecting(file, "--samples", "2", "--limit", "2", "--no-early", "--json")[1].splitlines()[-1])
    assert (again["written"], again["digest"]) == (0, found["digest"])


def test_a_declared_data_set_and_a_declared_model(collecting, tmp_path):
    code, _, _ = collecting("mixed", "--limit", "3", model="reference")
    traces = load_traces(tmp_path / "store")
    assert code == 0
    assert (traces.model, traces.licence, traces.layers, traces.expert_bytes) == ("reference", "Apache-2.0", 12, 18_432)
    assert {request.dataset for request in traces.requests} == {"mixed"}


@pytest.mark.parametrize(
    ("prompts", "more", "message"),
    [
        ("absent.jsonl", (), "absent.jsonl"),
        ("mixd", (), "mixed"),
        ("mixed", ("--limit", "0"), "--limit 0"),
        ("mixed", ("--limit", "1", "--out", ""), "give the name of a folder"),
        ("gsm8k", (), "--limit"),
        ("mixed", ("--tokens", "0"), "tokens = 0"),
        ("mixed", ("--chat",), "chat template"),
        ("mixed", ("--engine", "magic"), "engine"),
    ],
)
def test_wrong_input_is_one_line(collecting, tmp_path, prompts, more, message):
    code, _, err = collecting(prompts, *more)
    assert code == 2
    assert message in err.splitlines()[-1]
    assert not (tmp_path / "store").exists()
