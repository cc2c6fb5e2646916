"""Every claim of the paper is declared to be tested in one way, by a metric that exists and can read its options."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.metrics import METRICS
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.claim import ClaimTest, ClaimTests, load_claim_tests, load_claims
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)
TESTS = load_claim_tests(HOME)
with (HOME.paper / "claims.csv").open(encoding="utf-8", newline="") as _stream:
    IDS = [row["id"] for row in csv.DictReader(_stream)]
CLAIMS = {claim.id: claim for claim in load_claims(HOME)}


def test_the_tests_cover_every_claim_and_nothing_else() -> None:
    declared = [name for test in TESTS.test for name in test.claims]
    assert sorted(declared) == sorted(IDS)
    assert len(set(declared)) == len(declared)


@pytest.mark.parametrize("name", IDS)
def test_a_metric_can_be_asked_about_its_claim_where_nothing_was_run(name: str) -> None:
    test, claim = TESTS.of(name), CLAIMS[name]
    if test.metric:
        context = Context.of(HOME, [])
        found = METRICS[test.metric].find(context, claim, test.options)
        assert all(one.lane == "computed" for one in found)
        METRICS[test.metric].bars(context, claim, test.options)


@pytest.mark.parametrize("name", [claim.id for claim in CLAIMS.values() if claim.value is not None])
def test_a_number_has_a_tolerance_that_its_printed_value_is_within(name: str) -> None:
    test, value = TESTS.of(name), CLAIMS[name].value
    assert value is not None and test.kind == "number"
    low, high = test.band(value)
    assert low <= value <= high
    assert low < high or CLAIMS[name].unit.endswith("at least")


def test_every_input_of_the_calibration_that_is_a_claim_is_one_of_claims_csv() -> None:
    named = {name for item in load_calibration(HOME).input for name in item.claims}
    assert named and named <= set(IDS)


def test_a_claim_twice_or_of_no_test_is_an_error() -> None:
    test = ClaimTest(("a",), takes="a GPU")
    with pytest.raises(ValueError, match="a declared twice"):
        ClaimTests(1, (test, test))
    with pytest.raises(InputError, match=r"'b' of claims\.csv has no test"):
        ClaimTests(1, (test,)).of("b")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"takes": ""}, "takes"), ({"kind": "guess"}, "kind"), ({"tolerance": -1.0}, "tolerance"),
     ({"metric": "recall"}, "why"), ({"claims": ()}, "claims")],
)  # fmt: skip
def test_a_test_that_says_too_little_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(ClaimTest(("a",), takes="a GPU"), **change)  # type: ignore[arg-type]
