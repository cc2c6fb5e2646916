"""Protects the rules of docs/verdicts.md: what may be called reproduced, refuted, untested here, or an input."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from seqmoe.harness.claims import verdict
from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence, Sample, best_first
from seqmoe.harness.claims.sources import read_evidence
from seqmoe.harness.claims.verdict import INPUT, NOT_REPRODUCED, REFUTED, REPRODUCED, UNTESTED, VERDICTS, judge
from seqmoe.harness.record import Observations, PromptObservation, Record, Status
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.claim import ORDER, Claim, ClaimTest
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home, find_home
from seqmoe.spec.suite import Cell

HOME = find_home(Path(__file__).parent)
CONTEXT = Context.of(HOME, [])
CLAIM = Claim("x", "6", "a share", "Some model", 80.0, "%", "section 9")
TEST = ClaimTest(("x",), takes="a GPU", metric="share_of_full_load", tolerance=5.0, why="for the test")
ORDERED = dataclasses.replace(TEST, kind=ORDER)
QWEN3, QWEN36 = "Qwen3-30B-A3B-FP8", "Qwen3.6-35B-A3B-BF16"
MODELS = {QWEN3: ("qwen3-30b-a3b-fp8", "rtx4090"), QWEN36: ("qwen3.6-35b-a3b-bf16", "rtx5090")}


def evidence(value: float, low: float = float("nan"), high: float = float("nan"), **changes: object) -> Evidence:
    plain = Evidence("measured", "Some model", "run", True, Sample(value, low, high))
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def order(agrees: bool, contradicts: bool = False, **changes: object) -> Evidence:
    plain = Evidence("simulated", "Some model", "replay", True, agrees=agrees, contradicts=contradicts, text="so")
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def verdict_on(*found: Evidence, test: ClaimTest = TEST, claim: Claim = CLAIM) -> str:
    ordered = best_first(found, CONTEXT.is_reference)
    return verdict._verdict(CONTEXT, claim, test, ordered)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (evidence(84.9), REPRODUCED),
        (evidence(75.0, 70.0, 90.0), REPRODUCED),
        (evidence(60.0, 55.0, 65.0), REFUTED),
        (evidence(74.0, 70.0, 78.0), NOT_REPRODUCED),  # the interval reaches into the band
        (evidence(60.0), NOT_REPRODUCED),  # measured once: no interval, no refutation
        (evidence(60.0, lane="computed"), REFUTED),  # arithmetic is exact
        (evidence(60.0, 55.0, 65.0, lane="simulated"), NOT_REPRODUCED),  # a simulator may be wrong itself
        (evidence(60.0, 55.0, 65.0, lane="emulated"), NOT_REPRODUCED),
        (evidence(80.0, model="Other", own_terms=False), UNTESTED),  # another model's number is not this one's
        (evidence(10.0, 9.0, 11.0, model="Other", own_terms=False), UNTESTED),
    ],
)
def test_a_number_is_judged_by_lane_interval_and_whose_it_is(found: Evidence, expected: str) -> None:
    assert verdict_on(found) == expected


def test_nothing_found_is_untested() -> None:
    assert verdict_on() == UNTESTED


def test_a_measurement_decides_before_a_simulation_and_own_terms_before_others() -> None:
    simulated, measured = evidence(80.0, lane="simulated"), evidence(60.0, 59.0, 61.0)
    assert verdict_on(simulated, measured) == REFUTED
    other = evidence(60.0, 59.0, 61.0, model="Other", own_terms=False)
    assert verdict_on(other, simulated) == REPRODUCED


def test_at_least_is_no_upper_limit() -> None:
    claim = dataclasses.replace(CLAIM, unit="% at least", value=90.0)
    test = dataclasses.replace(TEST, tolerance=0.0)
    assert verdict_on(evidence(97.0, 96.0, 98.0), test=test, claim=claim) == REPRODUCED
    assert verdict_on(evidence(85.0, 84.0, 86.0), test=test, claim=claim) == REFUTED


def test_an_order_on_another_model_is_reproduced_or_not_but_never_refuted() -> None:
    claim = dataclasses.replace(CLAIM, value=None, unit="ordering")
    other = {"own_terms": False, "model": "Other"}
    assert verdict_on(order(True, **other), test=ORDERED, claim=claim) == REPRODUCED
    assert verdict_on(order(False, True, lane="measured", **other), test=ORDERED, claim=claim) == NOT_REPRODUCED
    assert verdict_on(order(False, True, lane="measured"), test=ORDERED, claim=claim) == REFUTED
    assert verdict_on(order(False, False, lane="measured"), test=ORDERED, claim=claim) == NOT_REPRODUCED


def test_every_other_real_model_must_agree_on_an_order_and_the_reference_model_counts_only_alone() -> None:
    claim = dataclasses.replace(CLAIM, value=None, unit="ordering")
    yes, no = (order(answer, own_terms=False, model=name) for answer, name in ((True, "A"), (False, "B")))
    reference = order(False, own_terms=False, model="Reference model")
    assert verdict_on(yes, no, test=ORDERED, claim=claim) == NOT_REPRODUCED
    assert verdict_on(reference, yes, test=ORDERED, claim=claim) == REPRODUCED
    assert verdict_on(reference, test=ORDERED, claim=claim) == NOT_REPRODUCED


def simulated(title: str, system: str, residency: float, tok_s: float) -> Record:
    model, hardware = MODELS[title]
    cell = Cell("fig6", "decode-short", system, model, "simulated", residency, 1, "synthetic routing", 1, 2, hardware)
    step = round(1e9 / tok_s)
    prompt = PromptObservation(0, (0, step, 2 * step), (None,) * 3)
    environment = {"host": "here", "cpu": {"model": "x"}}
    return Record(1, cell, cell.key, 0, Status("ok"), Observations((prompt,), {"hit_rate": 0.97}), environment,
                  "2026-11-30T00:00:00+00:00", 0.0)  # fmt: skip


def judged(records: list[Record], home: Home = HOME) -> dict[str, verdict.Judged]:
    return {one.claim.id: one for one in judge(home, records)}


def test_a_claim_made_of_bars_that_were_fitted_to_is_an_input_however_well_it_agrees() -> None:
    records = [
        simulated(QWEN36, "full", 1.0, 156.3),
        simulated(QWEN36, "seqmoe", 0.4, 118.3),
        simulated(QWEN3, "full", 1.0, 122.7),
        simulated(QWEN3, "seqmoe", 0.45, 104.1),
    ]
    found = judged(records)
    fitted, held_out = (found[f"fullload-fraction-{title}"] for title in (QWEN36, QWEN3))
    assert fitted.verdict == INPUT and fitted.agrees(fitted.evidence[0])
    sample = held_out.evidence[0].sample
    assert held_out.verdict == REPRODUCED and sample is not None and not sample.has_interval
    assert sample.value == pytest.approx(84.84, abs=0.01)
    assert found["fig1-FullLoad"].verdict == INPUT and found["fig1-SeqMoE"].verdict == REPRODUCED
    # A mean is not one before all of its models ran.
    assert found["fullload-fraction-mean"].verdict == UNTESTED


def test_every_claim_that_is_an_input_has_that_verdict() -> None:
    calibration, found = load_calibration(HOME), judged([])
    for name, one in found.items():
        if calibration.is_input_claim(name):
            assert one.verdict == INPUT


def test_cells_on_another_machine_or_of_batches_are_no_evidence() -> None:
    def changed(record: Record, **changes: object) -> Record:
        cell = dataclasses.replace(record.cell, **changes)  # type: ignore[arg-type]
        return dataclasses.replace(record, cell=cell, cell_key=cell.key)

    good = [simulated(QWEN3, "full", 1.0, 122.7), simulated(QWEN3, "seqmoe", 0.45, 104.1)]
    name = f"fullload-fraction-{QWEN3}"
    assert judged(good)[name].verdict == REPRODUCED
    for changes in ({"hardware": "rtx5090"}, {"batch": 2, "prompts": 2}, {"panel": "decode-long"}):
        assert judged([good[0], changed(good[1], **changes)])[name].verdict == UNTESTED


def test_what_arithmetic_settles_needs_no_record() -> None:
    found = judged([])
    assert found["table2"].verdict == found["size-experts"].verdict == REPRODUCED
    overlap = found["overlap-experts"]
    assert overlap.verdict == REFUTED and overlap.evidence[0].sample is not None
    # 1 / (122.7 * 48) s a layer; 4,718,592 bytes over 25 and 31.5 GB/s.
    assert overlap.evidence[0].sample.value == pytest.approx(25e9 / (122.7 * 48 * 4_718_592))
    assert overlap.evidence[0].sample.high == pytest.approx(31.5e9 / (122.7 * 48 * 4_718_592))


def test_the_published_records_give_a_verdict_on_every_claim_and_say_what_the_others_take() -> None:
    found = judge(HOME, read_evidence(HOME, [HOME.paper.parent / "published"]))
    assert [one.claim.id for one in found] == [row.id for row in verdict.load_claims(HOME)]
    assert {one.verdict for one in found} <= set(VERDICTS)
    by_id = {one.claim.id: one for one in found}
    probe = by_id["probe-recall-ordered"]
    assert probe.verdict == UNTESTED and probe.evidence[0].model == "GPT-OSS-20B-MXFP4" and probe.test.takes
    assert by_id["joint-beats-score"].deciding is not None
    assert not by_id["joint-beats-score"].evidence[0].own_terms


def test_a_folder_that_is_not_there_and_a_metric_that_is_not_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_evidence(HOME, [tmp_path / "none"])
    shutil.copytree(HOME.suites, tmp_path / "suites")
    (tmp_path / "results").mkdir()
    shutil.copytree(HOME.paper, tmp_path / "results" / "paper")
    path = tmp_path / "suites" / "claims.toml"
    path.write_text(path.read_text().replace('metric = "table2"', 'metric = "tabel2"'))
    with pytest.raises(InputError, match=r"tabel2.*'table2'"):
        judge(Home(tmp_path, tmp_path, "clone"), [])


def test_the_command_prints_json_and_its_gate_fails(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from seqmoe.cli import app

    folder = str(HOME.paper.parent / "published")
    plain = CliRunner().invoke(app, ["verdict", "--json", "--results", folder])
    answer = json.loads(plain.stdout.splitlines()[-1])
    assert plain.exit_code == 0 and set(answer["counts"]) == set(VERDICTS)
    assert sum(answer["counts"].values()) == len(answer["claims"])
    table2 = next(claim for claim in answer["claims"] if claim["id"] == "table2")
    assert (table2["verdict"], table2["lane"]) == (REPRODUCED, "computed")
    assert CliRunner().invoke(app, ["verdict", "--gate", "--results", folder]).exit_code == 1
