"""Protects `seqmoe trace import | stats | split`: what they print and write, and one plain line for wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqmoe.traces.importers import import_traces
from seqmoe.traces.source import digest
from seqmoe.traces.split import split
from seqmoe.traces.store import open_store

FIXTURES = Path(__file__).parent / "fixtures"
FORMATS = ("fingerprint.json", "layer_records.jsonl", "routed_experts.json", "route_trace.csv")


@pytest.fixture
def trace(seqmoe):
    """Run `seqmoe trace ARGS` in this process; returns exit code, the last line of stdout (JSON if it is), stderr."""

    def run(*args):
        code, out, err = seqmoe("trace", *args)
        last = (out.strip().splitlines() or [""])[-1]
        return code, json.loads(last) if "--json" in args and last else out, err

    return run


@pytest.mark.parametrize("name", FORMATS)
def test_import_keeps_everything(trace, tmp_path, name):
    code, found, _ = trace("import", FIXTURES / name, "--out", tmp_path / "s", "--json")
    expected = import_traces(FIXTURES / name)
    assert code == 0
    assert found["digest"] == digest(expected) == digest(open_store(tmp_path / "s"))
    assert (found["requests"], found["layers"]) == (len(expected.requests), expected.layers)
    assert found["tokens"] == sum(len(request.experts) for request in expected.requests)
    code, found, _ = trace("stats", tmp_path / "s", "--json")
    again = trace("stats", FIXTURES / name, "--json")[1]
    assert code == 0
    assert found == again


def test_import_takes_what_the_file_does_not_tell(trace, tmp_path):
    told = ("--model", "m", "--experts", "64", "--model-top-k", "8", "--licence", "MIT")
    code, _, _ = trace("import", FIXTURES / "layer_records.jsonl", "--out", tmp_path / "s", *told)
    assert code == 0
    stored = open_store(tmp_path / "s")
    assert (stored.model, stored.experts, stored.model_top_k, stored.licence) == ("m", 64, 8, "MIT")
    code, out, _ = trace("stats", tmp_path / "s")
    assert code == 0
    assert "64 experts" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "absent.csv", "--out", "OUT"), "no such trace file"),
        (("import", FIXTURES / "route_trace.csv", "--out", "OUT", "--router", "sigmund"), "did you mean 'sigmoid'"),
        (("import", FIXTURES / "route_trace.csv", "--out", "OUT", "--experts", "3"), "an expert id outside 0 to 2"),
        (("import", FIXTURES / "route_trace.csv", "--out", "OUT", "--experts", "99999"), "experts = 99999: expected"),
        (("import", FIXTURES / "route_trace.csv", "--out", "OUT", "--model-top-k", "-3"), "model_top_k = -3: expected"),
        (("import", FIXTURES / "route_trace.csv", "--out", FIXTURES), "already exists"),
        (("stats", "https://example.org/x"), "only hf://datasets/"),
        (("stats", FIXTURES / "route_trace.csv", "--plot", "OUT.pdf"), r"expected a name that ends in .png or .svg"),
        (("split", FIXTURES / "route_trace.csv", "--out", "OUT", "--test", "2"), "between 0 and 1"),
        (("split", FIXTURES / "fingerprint.json", "--out", "OUT"), "1 request cannot be split"),
    ],
)
def test_wrong_input_is_one_line(trace, tmp_path, arguments, message):
    given = [str(part).replace("OUT", str(tmp_path / "out")) for part in arguments]
    code, _, err = trace(*given)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_router_that_is_told_is_checked(trace, tmp_path):
    lines = (FIXTURES / "layer_records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        record["weights"] = [weight / 2 for weight in record["weights"]]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    told = ("import", tmp_path / "t.jsonl", "--out", tmp_path / "s", "--router")
    code, _, err = trace(*told, "softmax_renormalised")
    assert code == 2
    assert "request 0: token 0, layer 0: weights add up to 0.5" in err
    assert trace(*told, "sigmoid")[0] == 0


def test_split_writes_two_stores(trace, tmp_path):
    source = FIXTURES / "layer_records.jsonl"
    code, found, _ = trace("split", source, "--test", "0.5", "--out", tmp_path / "s", "--seed", "3", "--json")
    assert code == 0
    for name, part in zip(("train", "test"), split(import_traces(source), 0.5, 3), strict=True):
        stored = open_store(tmp_path / "s" / name)
        assert [r.identifier for r in stored.requests] == [r.identifier for r in part.requests]
        assert found[name]["digest"] == digest(part) == digest(stored)
    assert trace("split", source, "--out", tmp_path / "s")[0] == 2


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_stats_draws(trace, tmp_path, suffix):
    for name in ("route_trace.csv", "routed_experts.json"):  # the second has a layer without routing
        path = tmp_path / "new" / f"{name}.{suffix}"
        code, _, _ = trace("stats", FIXTURES / name, "--plot", path)
        assert code == 0
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
        if suffix == "svg":
            assert b"Reuse distance of an expert" in content
            trace("stats", FIXTURES / name, "--plot", path)
            assert path.read_bytes() == content


def test_real_files_give_their_documented_counts(trace, tmp_path, real_data):
    source = real_data / "traces" / "gpt-oss-20b.npz"
    assert trace("import", source, "--out", tmp_path / "gpt", "--json")[1]["tokens"] == 132_660
    found = trace("stats", tmp_path / "gpt", "--json")[1]
    assert (found["requests"], found["tokens"], found["decode_tokens"], found["prefill_tokens"]) == (
        393, 132_660, 132_660, 0,
    )  # fmt: skip
    assert (found["layers"], found["experts"], found["top_k"]) == (24, 32, 4)
    assert found["overlap"] == pytest.approx(0.434, abs=0.01)
    assert found["overlap_shuffled"] == pytest.approx(0.304, abs=0.01)
    source = real_data / "traces" / "qwen3-30b-a3b.route.csv"
    trace("import", source, "--out", tmp_path / "qwen", "--json")
    found = trace("stats", tmp_path / "qwen", "--json")[1]
    assert (found["requests"], found["prefill_tokens"], found["decode_tokens"]) == (1, 28, 128)
    assert (found["layers"], found["experts"], found["top_k"]) == (48, 128, 6)
    assert found["digest"] == digest(import_traces(source))
