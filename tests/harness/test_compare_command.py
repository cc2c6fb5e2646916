"""`seqmoe compare` as a gate: 0 where nothing is slower than allowed, 1 where something is, 2 for wrong input."""

from __future__ import annotations

import dataclasses
import json

import pytest
from harness_samples import record, timed

from seqmoe.harness.store import Store


@pytest.fixture
def seqmoe(home, monkeypatch, seqmoe):
    """Run `seqmoe ARGS` in the test's clone; returns exit code, stdout, stderr."""
    monkeypatch.chdir(home.work)
    return seqmoe


@pytest.fixture
def recorded(home):
    """Eight interleaved repeats of two systems, seqmoe 40 % slower."""
    with Store(home.results / "box" / "demo.jsonl") as opened:
        for index in range(8):
            for order, (system, gap) in enumerate((("lru", 5.0), ("seqmoe", 7.0))):
                prompts = [timed([gap + 0.01 * index] * 3) for _ in range(2)]
                one = record(prompts, repeat=index, system=system, environment={"host": "box"})
                opened.append(dataclasses.replace(one, started=f"2026-01-01T00:{2 * index + order:02}:00Z"))


def test_a_regression_ends_in_1(seqmoe, recorded):
    code, out, err = seqmoe("compare", "lru", "seqmoe", "--json")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["regressions"], found["counts"]["slower"]) == (1, 1, 1)
    assert found["cells"][0]["ratio"]["median"] < 1
    assert "1 cell slower than allowed" in err


def test_an_improvement_ends_in_0_and_is_told(seqmoe, recorded):
    code, out, _ = seqmoe("compare", "seqmoe", "lru")
    assert code == 0
    assert "1 cell: 1 faster" in out


@pytest.mark.parametrize("args", [("lru", "nothing"), ("lru", "seqmoe", "--metric", "speed"), ("lru",)])
def test_wrong_input_ends_in_2(seqmoe, recorded, args):
    assert seqmoe("compare", *args)[0] == 2


def test_a_threshold_below_what_is_called_slower_is_refused(seqmoe, recorded, home):
    suite = home.suites / "demo.toml"
    suite.write_text(suite.read_text().replace("[profile.quick]", "[regression]\nthreshold = 0.01\n[profile.quick]"))
    code, _, err = seqmoe("compare", "lru", "seqmoe")
    assert code == 2
    assert "demo.toml: regression: threshold = 0.01: must lie in [0.05, 1]" in err
