"""Protects `seqmoe replay` and `seqmoe table2`: their JSON, and one plain line with exit code 2 for wrong input."""

from __future__ import annotations

import json

import pytest
from replay_samples import traces

from seqmoe.predictor.making import make_predictor
from seqmoe.traces.store import write_store


@pytest.fixture
def seqmoe(seqmoe):
    """Run `seqmoe ARGS` in this process; returns exit code, the last line of stdout as JSON if it is, stderr."""

    def run(*args):
        code, out, err = seqmoe(*args)
        last = out.splitlines()[-1] if out else ""
        return code, json.loads(last) if last.startswith("{") else out, err

    return run


@pytest.fixture
def files(tmp_path):
    write_store(traces(seed=0), tmp_path / "test")
    write_store(traces(seed=1, count=5, steps=60), tmp_path / "train")
    predictor, record = make_predictor("first_order", traces(seed=1, count=5, steps=60))
    predictor.save(tmp_path / "p.safetensors", record)
    return tmp_path


def test_policies_with_forecasts_prefetching_and_fitted_weights(seqmoe, files):
    names = "lru,belady_f8,seqmoe,mix+infinity,learned,popularity"
    options = ["--residency", "0.3,0.5", "--predictor", files / "p.safetensors", "--fit", files / "train"]
    code, found, _ = seqmoe("replay", "--traces", files / "test", "--policies", names, *options, "--json")
    assert code == 0 and [row["policy"] for row in found["rows"]] == [n for n in names.split(",") for _ in range(2)]
    assert found["link_experts_per_layer"] == pytest.approx(0.90, abs=0.01) and found["contract"] == "event"
    for row in found["rows"]:
        assert {"policy", "residency", "hit_rate", "late", "bytes_per_token", "gap_recovered"} <= set(row)
        assert (row["sent"] > 0) == (row["policy"] in ("seqmoe", "mix+infinity"))


def test_the_table_tells_of_prefetching_only_where_there_is_any(seqmoe, files):
    code, out, _ = seqmoe("replay", "--traces", files / "test", "--residency", "0.5", "--batch", "2", "--warm-up", "3")
    assert code == 0 and "belady" in out and "prefetch" not in out
    more = ["--policies", "seqmoe", "--predictor", files / "p.safetensors", "--link-experts-per-layer", "inf"]
    code, out, _ = seqmoe("replay", "--traces", files / "test", "--residency", "0.5", *more)
    assert code == 0 and "any number of experts" in out


def test_the_sequential_contract_says_what_it_is_for(seqmoe, files):
    code, _, err = seqmoe("replay", "--traces", files / "test", "--residency", "0.5", "--contract", "sequential")
    assert code == 0 and "only for comparison" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "seqmoe"], "'seqmoe' works on forecasts"),
        (["--policies", "belady9"], "did you mean 'belady"),
        (["--policies", "lru+lifo"], "prefetching order 'lifo' is unknown"),
        (["--policies", ","], "--policies: names nothing"),
        (["--residency", "0.01"], "smallest legal residency"),
        (["--residency", "half"], "not a comma-separated list of numbers"),
        (["--contract", "events"], "did you mean 'event'"),
        (["--link-experts-per-layer", "-2"], "must not be negative"),
        (["--predictor", "absent.safetensors"], "absent.safetensors"),
        (["--warm-up", "-1"], "--warm-up -1: must be at least 0"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(seqmoe, files, options, message):
    code, out, err = seqmoe("replay", "--traces", files / "test", *options)
    assert (code, out) == (2, "") and message in err and len(err.strip().splitlines()) == 1


def test_table_2(seqmoe):
    code, found, _ = seqmoe("table2", "--json")
    sets = {row["order"]: row["chosen"] for row in found["rows"]}
    assert code == 0 and (sets["optimal"], sets["infinity"], sets["promoe"]) == ("ABDE", "BDEF", "ABCD")
    for row in found["rows"]:
        assert row["printed"] in (None, row["chosen"])
    assert "ABDE" in seqmoe("table2")[1]
