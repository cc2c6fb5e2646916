"""Protects the store: what goes in comes out, lazily; what is broken, newer or half-written is refused."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from trace_samples import request, same, trace_set

from seqmoe.spec.errors import InputError
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.store import MANIFEST, StoreWriter, open_store, write_store
from seqmoe.traces.summary import column


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("experts", [8, 255, 256, 300])
def test_a_round_trip_changes_nothing(tmp_path, experts, full):
    traces = trace_set(experts=experts, full=full, licence="MIT", model_top_k=3, source="here", expert_bytes=9)
    write_store(traces, tmp_path / "s", shard_requests=3)
    stored = open_store(tmp_path / "s")
    assert len(stored.requests) == 7
    assert all(same(one, other) for one, other in zip(stored.requests, traces.requests, strict=True))
    for name in ("model", "layers", "experts", "top_k", "router", "licence", "model_top_k", "source", "expert_bytes"):
        assert getattr(stored, name) == getattr(traces, name)
    assert digest(stored) == digest(traces) == json.loads((tmp_path / "s" / MANIFEST).read_text())["digest"]
    assert digest(load_traces(tmp_path / "s")) == digest(traces)


def test_half_precision_keeps_ids_and_rounds_weights(tmp_path):
    traces = trace_set(full=True)
    write_store(traces, tmp_path / "s", half=True)
    stored = open_store(tmp_path / "s")
    for one, other in zip(stored.requests, traces.requests, strict=True):
        assert np.array_equal(one.experts, other.experts)
        assert np.array_equal(one.weights, other.weights.astype(np.float16).astype(np.float32))
        assert one.weights.dtype == np.float32
    assert digest(stored) == json.loads((tmp_path / "s" / MANIFEST).read_text())["digest"] != digest(traces)


def test_indices_slices_and_pickling(tmp_path):
    traces = trace_set()
    write_store(traces, tmp_path / "s", shard_requests=2)
    requests = open_store(tmp_path / "s").requests
    assert same(requests[-1], traces.requests[6])
    assert [r.identifier for r in requests[1:6:2]] == ["r1", "r3", "r5"]
    assert same(pickle.loads(pickle.dumps(requests))[4], traces.requests[4])
    with pytest.raises(IndexError):
        requests[7]


def test_only_the_shard_that_is_asked_for_is_read(tmp_path):
    write_store(trace_set(40), tmp_path / "s", shard_requests=1)
    shards = sorted((tmp_path / "s").glob("*.arrow"))
    assert len(shards) == 40
    for path in shards[1:]:  # what is not asked for may even be broken
        path.write_bytes(b"")
    stored = open_store(tmp_path / "s")
    assert stored.requests[0].identifier == "r0"
    with pytest.raises(InputError, match=r"shard-00007.arrow.*truncated"):
        stored.requests[7]


def test_reading_does_not_fill_the_memory(tmp_path):
    rng = np.random.default_rng(0)
    big = request(rng, layers=48, experts=128, top_k=8, steps=1500)
    with StoreWriter(tmp_path / "s", _like(big), shard_requests=8) as writer:
        for _ in range(40):
            writer.append(big)
    size = sum(path.stat().st_size for path in (tmp_path / "s").glob("*.arrow"))
    assert size > 100e6
    script = """
        import sys
        from pathlib import Path
        from seqmoe.traces.store import open_store
        def private():
            line = next(l for l in open("/proc/self/status") if l.startswith("RssAnon"))
            return int(line.split()[1]) * 1024
        traces = open_store(Path(sys.argv[1]))
        traces.requests[0]
        before, steps, most = private(), 0, 0
        for request in traces.requests:
            steps += len(request.experts)
            most = max(most, private() - before)
        print(steps, most)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "s")]
    steps, most = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert steps == 60_000
    assert most < size / 4


def _like(one):
    from seqmoe.spec.trace import TraceSet

    return TraceSet("big", one.experts.shape[1], 128, one.experts.shape[2], ())


def test_a_newer_schema_is_refused(tmp_path):
    write_store(trace_set(), tmp_path / "s")
    _edit(tmp_path / "s", schema=2)
    with pytest.raises(InputError, match=r"schema = 2, but this version of seqmoe reads up to 1; upgrade"):
        open_store(tmp_path / "s")
    with (
        pytest.raises(InputError, match="schema = 2"),
        StoreWriter(tmp_path / "s", trace_set()),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "one"}, "schema = 'one'"),
        ({"experts": 1}, "not a geometry"),
        ({"expertz": 3}, "unknown key 'expertz'.*experts"),
        ({"router": "dice"}, "router = 'dice'"),
        ({"shards": [{"file": "x", "requests": -1, "steps": 1}]}, r"shards\[0\]: requests = -1"),
        ({"complete": False}, "unfinished, 7 requests so far"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path, change, message):
    write_store(trace_set(), tmp_path / "s")
    _edit(tmp_path / "s", **change)
    with pytest.raises(InputError, match=message):
        open_store(tmp_path / "s")


@pytest.mark.parametrize("change", [{"layers": 6, "top_k": 1}, {"experts": 9}, {"shards": []}, {"digest": "0" * 12}])
def test_an_edited_manifest_is_noticed_by_whoever_asks_for_the_digest(tmp_path, change):
    write_store(trace_set(), tmp_path / "s")
    _edit(tmp_path / "s", **change)
    with pytest.raises(InputError, match="does not fit the requests"):
        digest(open_store(tmp_path / "s"))


def test_a_shard_with_any_byte_turned_is_refused_in_words(tmp_path):
    write_store(trace_set(2), tmp_path / "s")
    shard = tmp_path / "s" / "shard-00000.arrow"
    whole = shard.read_bytes()
    for place in range(0, 2000, 13):  # what describes the columns
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            list(open_store(tmp_path / "s").requests)
        except InputError as error:
            assert "shard-00000.arrow" in str(error)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    from dataclasses import replace

    traces = trace_set(2)
    broken = replace(traces.requests[0], weights=np.full_like(traces.requests[0].weights, np.nan))
    with (
        pytest.raises(InputError, match="weights that are no finite numbers"),
        StoreWriter(tmp_path / "s", traces) as writer,
    ):
        writer.append(broken)


def test_a_damaged_store_is_refused(tmp_path):
    write_store(trace_set(), tmp_path / "s", shard_requests=4)
    second = tmp_path / "s" / "shard-00001.arrow"
    whole = second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"shard-00001.arrow.*truncated"):
        list(open_store(tmp_path / "s").requests)
    second.unlink()
    with pytest.raises(InputError, match=r"shard-00001.arrow: missing"):
        open_store(tmp_path / "s")
    (tmp_path / "s" / MANIFEST).write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        open_store(tmp_path / "s")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="not a store of traces"):
        load_traces(tmp_path / "empty")


def test_a_store_that_fails_leaves_nothing(tmp_path):
    def breaks():
        yield from trace_set(3).requests
        raise RuntimeError("source broke")

    class Breaking(list):
        __iter__ = lambda self: breaks()  # noqa: E731

    traces = trace_set(0)
    with pytest.raises(RuntimeError):
        write_store(_with(traces, Breaking()), tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
    write_store(trace_set(), tmp_path / "s")
    with pytest.raises(InputError, match="already exists"):
        write_store(trace_set(), tmp_path / "s")


def test_a_store_that_cannot_be_is_told_by_the_name_that_was_asked_for(tmp_path):
    one, other = trace_set(2).requests
    twice = _with(trace_set(0), (one, other, one))
    with pytest.raises(InputError, match=rf"^{tmp_path / 's'}: request 2 'r0': an earlier request has the same"):
        write_store(twice, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def _with(traces, requests):
    from dataclasses import replace

    return replace(traces, requests=requests)


def test_a_writer_refuses_what_does_not_belong(tmp_path):
    traces = trace_set(2)
    with StoreWriter(tmp_path / "s", traces) as writer:
        writer.append(traces.requests[0])
        with pytest.raises(InputError, match="an earlier request has the same identifier"):
            writer.append(traces.requests[0])
        with pytest.raises(InputError, match=r"shape \(4, 2\), expected \(3, 2\)"):
            writer.append(request(np.random.default_rng(0), layers=4))
    assert len(open_store(tmp_path / "s").requests) == 1
    with pytest.raises(InputError, match="holds other traces"), StoreWriter(tmp_path / "s", trace_set(experts=9)):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="neither empty nor a store"), StoreWriter(tmp_path / "other", traces):
        pass


def test_a_writer_goes_on_after_an_exception(tmp_path):
    traces = trace_set()
    with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path / "s", traces, shard_requests=2) as writer:
        for one in traces.requests[:3]:
            writer.append(one)
        raise KeyboardInterrupt
    with pytest.raises(InputError, match="unfinished, 3 requests"):
        open_store(tmp_path / "s")
    with StoreWriter(tmp_path / "s", traces, shard_requests=2) as writer:
        assert writer.written == {"r0", "r1", "r2"}
        for one in traces.requests:
            if one.identifier not in writer.written:
                writer.append(one)
    stored = open_store(tmp_path / "s")
    assert digest(stored) == digest(traces)
    assert column(stored.requests, "identifier") == [f"r{index}" for index in range(7)]


def test_a_killed_writer_resumes_at_its_last_whole_shard(tmp_path):
    script = """
        import os, signal, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        from trace_samples import trace_set
        from seqmoe.traces.store import StoreWriter
        traces = trace_set(50)
        with StoreWriter(Path(sys.argv[1]), traces, shard_requests=20) as writer:
            for one in traces.requests[:45]:
                writer.append(one)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "s"), os.path.dirname(__file__)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert list((tmp_path / "s").glob("*.partial"))
    traces = trace_set(50)
    with StoreWriter(tmp_path / "s", traces, shard_requests=20) as writer:
        assert writer.written == {f"r{index}" for index in range(40)}
        for one in traces.requests[40:]:
            writer.append(one)
    assert not list((tmp_path / "s").glob("*.partial"))
    assert digest(open_store(tmp_path / "s")) == digest(traces)


def _edit(folder, **change):
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
