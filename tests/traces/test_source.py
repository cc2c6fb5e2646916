"""Protects what may be named as traces, with a local stand-in for the hub, and a digest that is of the content."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from trace_samples import trace_set

from seqmoe.spec.errors import InputError
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.store import write_store

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A stand-in for the hub: ``someone/traces`` has a store at its root, one in a folder, and a foreign file."""
    remote = tmp_path / "remote"
    write_store(trace_set(4), remote)
    write_store(trace_set(3), remote / "more")
    shutil.copy(FIXTURES / "fingerprint.json", remote / "example.json")
    calls = []

    def snapshot_download(repo_id, *, repo_type, revision, allow_patterns):
        calls.append((repo_id, repo_type, revision, allow_patterns))
        if repo_id != "someone/traces":
            raise huggingface_hub.errors.LocalEntryNotFoundError("no such data set here")
        return str(remote)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_the_hub_gives_stores_and_files(hub):
    assert len(load_traces("hf://datasets/someone/traces").requests) == 4
    assert len(load_traces("hf://datasets/someone/traces@v1/more").requests) == 3
    assert load_traces("hf://datasets/someone/traces/example.json").model == "gpt-oss-20b"
    assert hub[0] == ("someone/traces", "dataset", None, ["trace_set.json", "*.arrow"])
    assert hub[1][2:] == ("v1", ["more", "more/*"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf://datasets/someone", "expected hf://datasets/OWNER/NAME"),
        ("hf://datasets/someone/traces/../../etc", "expected hf://datasets/OWNER/NAME"),
        ("hf://datasets/no/body", "cannot be fetched from the hub: no such data set here"),
        ("hf://datasets/someone/traces/absent", "has no 'absent'"),
        ("hf://models/a/b", "only hf://datasets/"),
        ("https://example.org/t.npz", "only hf://datasets/"),
        ("absent.npz", "no such trace file"),
    ],
)
def test_other_names_are_refused(hub, source, message):
    with pytest.raises(InputError, match=message):
        load_traces(source)


def test_an_empty_name_is_not_the_current_folder():
    with pytest.raises(InputError, match="name of the traces is empty"):
        load_traces("")


def test_the_digest_is_of_the_content_alone():
    traces = trace_set()
    assert len(digest(traces)) == 12
    assert digest(traces) == digest(replace(traces, source="elsewhere", licence="MIT", requests=list(traces.requests)))
    first = traces.requests[0]
    experts = first.experts.copy()
    experts[-1, 0] = experts[-1, 0][::-1]
    for other in (
        replace(traces, model="another"),
        replace(traces, router="unknown"),
        replace(traces, requests=traces.requests[1:]),
        replace(traces, requests=traces.requests[::-1]),
        replace(traces, requests=(replace(first, experts=experts), *traces.requests[1:])),
        replace(traces, requests=(replace(first, weights=None), *traces.requests[1:])),
        replace(traces, requests=(replace(first, logits=first.weights), *traces.requests[1:])),
        replace(traces, requests=(replace(first, prompt_length=9), *traces.requests[1:])),
    ):
        assert digest(other) != digest(traces)


def test_the_digest_does_not_depend_on_the_arrays_layout():
    traces = trace_set()
    strided = tuple(replace(one, experts=np.asfortranarray(one.experts)) for one in traces.requests)
    assert digest(replace(traces, requests=strided)) == digest(traces)
