"""Protects `seqmoe predictor`: its JSON, and one plain line with exit code 2 for wrong input, before any work."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from predictor_samples import random_request, sample_traces, trace_set

from seqmoe.traces.store import write_store


@pytest.fixture
def seqmoe(seqmoe):
    """Run `seqmoe predictor ARGS` in this process; returns exit code, stdout, stderr."""
    return partial(seqmoe, "predictor")


@pytest.fixture
def stores(tmp_path):
    write_store(sample_traces(seed=0), tmp_path / "train")
    write_store(sample_traces(seed=1), tmp_path / "test")
    write_store(trace_set(random_request(np.random.default_rng(0), 9, layers=3)), tmp_path / "other")
    return tmp_path


def test_train_and_eval(seqmoe, stores):
    file = stores / "p.safetensors"
    train = ("train", "--kind", "first_order", "--traces", stores / "train", "--out", file)
    code, out, _ = seqmoe(*train, "--json")
    made = json.loads(out.splitlines()[-1])
    assert (code, made["kind"], made["bytes"]) == (0, "first_order", file.stat().st_size)
    assert made["training"]["requests"] == 5
    code, out, err = seqmoe("eval", "--predictor", file, "--traces", stores / "test", "--json")
    judged = json.loads(out.splitlines()[-1])
    assert code == 0 and "warning" not in err
    names = ["k", "k+1", "k+2", "k+3", "k+4"]
    assert list(judged["recall"]) == list(judged["seq8"]) == list(judged["interval"]) == names
    assert all(low <= judged["recall"][name] <= high for name, (low, high) in judged["interval"].items())
    assert judged["sequences"] == 5 and 0 <= judged["ece"] <= 1 and not judged["seen_in_training"]
    assert judged["long"]["k"] is None and "4,096" in judged["missing"]["long"]
    assert list(judged["recall_on_misses"]) == ["0.15", "0.25", "0.35", "0.45"]
    code, out, err = seqmoe("eval", "--predictor", file, "--traces", stores / "train", "--stride", 3)
    assert code == 0 and "Seq-8" in out and "made from" in err
    code, out, err = seqmoe(*train, "--minutes", 5)
    assert code == 0 and "change nothing" in err and "5 sequences" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--kind": "mamba"}, "did you mean 'mamba2'"),
        ({"--minutes": "0"}, "--minutes 0"),
        ({"--minutes": "nan"}, "--minutes nan"),
        ({"--minutes": "-1"}, "--minutes -1"),
        ({"--minutes": "soon"}, "'--minutes'"),
        ({"--traces": "absent.npz"}, "absent.npz"),
        ({"--out": "absent/p"}, "no folder"),
        ({"--out": "."}, "is a folder"),
        ({"--kind": "early_router"}, "seqmoe trace collect"),
    ],
)
def test_train_refuses(seqmoe, stores, monkeypatch, change, message):
    monkeypatch.chdir(stores)
    options = {"--kind": "mamba2", "--traces": "train", "--out": "p", "--minutes": "1"} | change
    code, _, err = seqmoe("train", *(part for pair in options.items() for part in pair))
    assert code == 2 and message in err and "Traceback" not in err
    assert {path.name for path in stores.iterdir()} == {"train", "test", "other"}


def test_eval_refuses_another_top_k(seqmoe, stores):
    write_store(trace_set(random_request(np.random.default_rng(0), 9, k=3)), stores / "top3")
    assert seqmoe("train", "--kind", "previous", "--traces", stores / "train", "--out", stores / "p")[0] == 0
    code, _, err = seqmoe("eval", "--predictor", stores / "p", "--traces", stores / "top3")
    assert code == 2 and "made for the top 2, but in the traces a token has 3 experts" in err


def test_eval_refuses(seqmoe, stores):
    file = stores / "p"
    seqmoe("train", "--kind", "previous", "--traces", stores / "train", "--out", file)
    (stores / "cut").write_bytes(file.read_bytes()[:-9])
    for predictor, traces, message in (
        (stores / "absent", stores / "test", "no such predictor file"),
        (stores / "cut", stores / "test", "cut: not a predictor"),
        (stores / "test", stores / "test", "no such predictor file"),
        (file, stores / "other", "but the traces of random have 3 of 8"),
        (file, stores / "nothing", "nothing"),
    ):
        code, _, err = seqmoe("eval", "--predictor", predictor, "--traces", traces)
        assert code == 2 and message in err and "Traceback" not in err
    assert seqmoe("eval", "--predictor", file, "--traces", stores / "test", "--stride", 0)[0] == 2
