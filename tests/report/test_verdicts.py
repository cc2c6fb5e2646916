"""Verdicts on the page, in the data and in the terminal: all claims, nothing simulated passed off as measured."""

from __future__ import annotations

import csv
import dataclasses
import re

import pytest
from rich.console import Console

from seqmoe.harness.claims.evidence import Evidence, Sample
from seqmoe.harness.claims.sources import read_evidence
from seqmoe.harness.claims.verdict import INPUT, REFUTED, REPRODUCED, UNTESTED, Judged, judge
from seqmoe.report.verdict_section import section_verdict, sentences, verdicts_data
from seqmoe.report.verdict_table import as_plain, note, number, origins, ours, printed, terminal_table, tolerance
from seqmoe.spec.claim import Claim, ClaimTest
from seqmoe.spec.paths import find_home

HOME = find_home()
CLAIM = Claim("speed", "6", "how <fast> it is", "Some model", 84.56, "%", "section 9.2; a remark")
TEST = ClaimTest(("speed",), takes="a GPU", metric="recall", tolerance=2.0, why="for the test")


def one(verdict: str = REPRODUCED, *evidence: Evidence, claim: Claim = CLAIM, test: ClaimTest = TEST) -> Judged:
    return Judged(claim, test, verdict, evidence or (simulated(),))


def simulated(**changes: object) -> Evidence:
    plain = Evidence("simulated", "Some model", "simulator", True, Sample(84.9), synthetic=True)
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def published() -> list[Judged]:
    return judge(HOME, read_evidence(HOME, [HOME.paper.parent / "published"]))


def test_numbers_are_as_printed_and_ours_have_their_interval() -> None:
    measured = Evidence("measured", "Some model", "run", True, Sample(60.0, 58.04, 61.0))
    assert printed(one()) == "84.56%" and ours(one(), measured) == "60.0% [58.0, 61.0]"
    assert ours(one(), simulated()) == "84.9%"
    assert number(-1.234, "percentage points") == "−1.23 points"
    least = dataclasses.replace(CLAIM, value=90.0, unit="% at least")
    assert printed(one(claim=least)) == "at least 90%" and tolerance(one(claim=least)).startswith("at least")
    assert tolerance(one(test=dataclasses.replace(TEST, tolerance=0.15, relative=True))) == "±15%"


def test_the_note_says_what_a_test_takes_and_whose_model_it_was() -> None:
    assert "takes a GPU" in note(one(UNTESTED))
    other = simulated(own_terms=False, model="Other")
    assert note(one(REPRODUCED, other)).startswith("on another model; the paper's takes a GPU")
    assert "fitted" in note(one(INPUT)) and note(one()) == ""


def test_simulated_replayed_and_computed_are_counted_apart() -> None:
    judged = [
        one(),
        one(REPRODUCED, simulated(synthetic=False)),
        one(REPRODUCED, simulated(lane="computed", synthetic=False)),
        one(UNTESTED),
        one(INPUT),
    ]
    assert origins(judged) == {REPRODUCED: "1 simulated, 1 replayed, 1 computed"}
    assert sentences(judged)[0].startswith("1 of the 3 that are reproduced are predictions of the simulator")
    assert sentences([one(REFUTED, simulated(lane="measured", synthetic=False))])[0].startswith("Refuted: speed")


def test_an_untested_claim_and_an_input_have_evidence_but_no_figure_of_their_own() -> None:
    for verdict in (UNTESTED, INPUT):
        plain = as_plain(one(verdict))
        assert plain["ours"] is None and plain["lane"] is None and len(plain["evidence"]) == 1
    assert as_plain(one())["ours"] == 84.9


def test_the_section_has_a_row_for_every_claim_and_escapes_what_it_shows(published: list[Judged]) -> None:
    body = str(section_verdict(published).body)
    with (HOME.paper / "claims.csv").open(encoding="utf-8", newline="") as stream:
        names = [row["id"] for row in csv.DictReader(stream)]
    assert re.findall(r'<small class="code">([^<]*)</small>', body) == names
    assert len(re.findall(r"<tr data-kind=", body)) == len(names) == len(verdicts_data(published))
    assert "how <fast>" not in str(section_verdict([one()]).body)


def test_the_terminal_shows_every_claim_with_its_verdict(published: list[Judged]) -> None:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(terminal_table(published))
    text = console.export_text()
    assert "[79.5, 81.2]" in text and text.count("untested here") == sum(x.verdict == UNTESTED for x in published)
