"""Protects the reference model's traces: made once, kept under a name that tells weights and options, resumable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqmoe.reference import traces
from seqmoe.traces.collect import collector
from seqmoe.traces.source import digest, load_traces


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch):
    monkeypatch.setattr(traces, "OPTIONS", replace(traces.OPTIONS, tokens=4, samples=1, batch=20))
    monkeypatch.setattr(collector, "_ROUND", 20)


def test_collected_once(tmp_path, monkeypatch):
    told = []
    store = traces.reference_traces(tmp_path, told.append)
    found = load_traces(store)
    assert store.parent == tmp_path
    assert (found.model, found.router, len(found.requests)) == ("reference", "softmax_renormalised", 60)
    assert {request.dataset.split("/")[0] for request in found.requests} == {"mixed"}
    assert all(request.early is not None and request.weights is not None for request in found.requests)
    assert told[-1].done == pytest.approx(60)
    monkeypatch.setattr(collector, "collect", None)
    assert traces.reference_traces(tmp_path) == store
    monkeypatch.setattr(traces, "OPTIONS", replace(traces.OPTIONS, seed=1))
    with pytest.raises(TypeError):  # another name: it would be collected
        traces.reference_traces(tmp_path)


def test_an_interrupted_collection_resumes(tmp_path):
    def interrupting(now):
        if now.done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        traces.reference_traces(tmp_path / "cut", interrupting)
    told = []
    store = traces.reference_traces(tmp_path / "cut", told.append)
    assert told[0].requests < 60
    whole = traces.reference_traces(tmp_path / "whole")
    assert digest(load_traces(store)) == digest(load_traces(whole))
