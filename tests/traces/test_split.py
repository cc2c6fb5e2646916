"""Protects the split: by request, complete, disjoint, lazy, and the same wherever the set is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import same, trace_set

from seqmoe.spec.errors import InputError
from seqmoe.traces.source import digest
from seqmoe.traces.split import split, subset, where
from seqmoe.traces.store import open_store, write_store
from seqmoe.traces.summary import column

SETS = {count: trace_set(count) for count in range(2, 30)}


def _names(traces):
    return column(traces.requests, "identifier")


@settings(max_examples=60)
@given(st.integers(2, 29), st.floats(0.01, 0.99), st.integers(0, 5))
def test_parts_are_disjoint_complete_and_of_the_right_size(count, share, seed):
    train, test = split(SETS[count], share, seed)
    assert sorted(_names(train) + _names(test)) == sorted(_names(SETS[count]))
    assert len(test.requests) == min(max(round(share * count), 1), count - 1)
    assert _names(test) == [name for name in _names(SETS[count]) if name in set(_names(test))]


def test_the_split_does_not_depend_on_where_the_set_is_kept_or_on_its_order(tmp_path):
    traces = trace_set(24)
    write_store(traces, tmp_path / "s", shard_requests=5)
    stored = open_store(tmp_path / "s")
    for one, other in zip(split(traces, 0.25, 3), split(stored, 0.25, 3), strict=True):
        assert _names(one) == _names(other)
        assert digest(one) == digest(other) != digest(traces)
        assert all(same(a, b) for a, b in zip(one.requests, other.requests, strict=True))
    turned = replace(traces, requests=traces.requests[::-1])
    assert set(_names(split(turned, 0.25, 3)[1])) == set(_names(split(traces, 0.25, 3)[1]))
    assert set(_names(split(traces, 0.25, 4)[1])) != set(_names(split(traces, 0.25, 3)[1]))


def test_requests_without_or_with_equal_names_are_split_too():
    traces = trace_set(10)
    for name in ("", "same"):
        unnamed = replace(traces, requests=tuple(replace(one, identifier=name) for one in traces.requests))
        train, test = split(unnamed, 0.3)
        assert (len(train.requests), len(test.requests)) == (7, 3)


def test_samples_of_one_prompt_stay_together(tmp_path):
    grouped = trace_set(30)
    requests = tuple(replace(r, group=f"prompt-{n // 3}") for n, r in enumerate(grouped.requests))
    grouped = replace(grouped, requests=requests)
    train, test = split(grouped, 0.2, 3)
    assert not {r.group for r in train.requests} & {r.group for r in test.requests}
    assert (len(train.requests), len(test.requests)) == (24, 6)
    write_store(grouped, tmp_path / "s")
    stored = split(open_store(tmp_path / "s"), 0.2, 3)[1]
    assert [r.identifier for r in stored.requests] == [r.identifier for r in test.requests]
    with pytest.raises(InputError, match="3 requests of one prompt cannot be split"):
        split(replace(grouped, requests=requests[:3]))


@pytest.mark.parametrize("share", [0, 1, -0.1, 2])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match="between 0 and 1"):
        split(trace_set(), share)


def test_one_request_cannot_be_split():
    with pytest.raises(InputError, match="1 request cannot be split"):
        split(trace_set(1))


def test_subsets_and_selections(tmp_path):
    write_store(trace_set(9), tmp_path / "s", shard_requests=4)
    traces = open_store(tmp_path / "s")
    part = subset(traces, [7, 2, -1])
    assert _names(part) == ["r7", "r2", "r8"]
    assert _names(subset(part, [1])) == ["r2"]
    assert part.requests[1:].indices.tolist() == [2, 8]
    assert same(part.requests[0], traces.requests[7])
    chosen = where(traces, lambda about: about.dataset == "d1" and about.steps > 3)
    assert _names(chosen) == [r.identifier for r in traces.requests if r.dataset == "d1" and len(r.experts) > 3]
    assert len(subset(traces, []).requests) == 0
    with pytest.raises(IndexError):
        subset(traces, [9])


def test_selecting_reads_no_routing(tmp_path, monkeypatch):
    write_store(trace_set(9), tmp_path / "s")
    traces = open_store(tmp_path / "s")
    monkeypatch.setattr("seqmoe.traces.store.request_of", lambda *_: pytest.fail("routing was read"))
    assert len(where(split(traces)[0], lambda about: about.steps > 2).requests) > 0
    digest(traces)


def test_positions_are_kept():
    train, _ = split(trace_set(full=True))
    assert np.array_equal(train.requests[0].positions, np.arange(3, 3 + len(train.requests[0].experts)))
