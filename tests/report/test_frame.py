"""Protects what a number is set against: full load of the same repeat, lane, host and workload, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from report_samples import ENVIRONMENT, HOME, NEEDS_GPU, cell, record

from seqmoe.harness.record import Record, Status
from seqmoe.report.frame import records_frame
from seqmoe.report.summary import COLUMNS, summarise
from seqmoe.spec.suite import load_suite

EMULATED = {"lane": "emulated", "hardware": "rtx4090"}


def only(frame, **wanted):
    rows = frame
    for key, value in wanted.items():
        rows = rows[rows[key] == value]
    assert len(rows) == 1, f"{len(rows)} rows with {wanted}"
    return rows.iloc[0]


def test_share_divides_by_full_load_of_the_same_repeat():
    ours = cell(system="lru", residency=0.25, **EMULATED)
    full = cell(**EMULATED)
    frame = records_frame(
        [record(full, 40.0, 0), record(ours, 20.0, 0), record(full, 50.0, 1), record(ours, 30.0, 1)], HOME
    )
    shares = frame[frame["system"] == "lru"].set_index("repeat")["share"]
    # one token period is written in whole nanoseconds
    assert shares[0] == pytest.approx(20 / 40, rel=1e-6) and shares[1] == pytest.approx(30 / 50, rel=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"lane": "measured", "hardware": "host"},
        {"hardware": "rtx5090"},
        {"model": "other"},
        {"batch": 2},
        {"decode_tokens": 12},
        {"dataset": "gsm8k"},
        {"panel": "batch"},
        {"seed": 1},
    ],
)
def test_full_load_of_another_workload_or_lane_is_no_reference(change):
    ours, full = cell(system="lru", residency=0.25, **EMULATED), cell(**(EMULATED | change))
    frame = records_frame([record(full), record(ours)], HOME)
    assert math.isnan(only(frame, system="lru")["share"])


def test_full_load_of_another_host_or_repeat_is_no_reference():
    ours, full = cell(system="lru", residency=0.25), cell()
    elsewhere = records_frame([record(full, host="another-host"), record(ours)], HOME)
    later = records_frame([record(full, repeat=1), record(ours)], HOME)
    assert math.isnan(only(elsewhere, system="lru")["share"]) and math.isnan(only(later, system="lru")["share"])


def test_the_record_written_last_counts():
    point = cell(system="lru", residency=0.25)
    frame = records_frame([record(point, status=Status("crash", "killed")), record(point, 10.0)], HOME)
    assert only(frame, system="lru")["status"] == "ok"


def test_own_tokens_that_differ_make_the_row_invalid_and_take_its_speed():
    full, ours = cell(), cell(system="seqmoe", residency=0.25)
    said = [*range(100, 111)]
    frame = records_frame([record(full), record(ours, tokens=[*said[:5], 9, *said[6:]])], HOME)
    row = only(frame, system="seqmoe")
    assert row["status"] == "invalid" and math.isnan(row["tok_s"]) and math.isnan(row["share"])
    assert row["matched"] == pytest.approx(5 / 11) and "at token 5 of prompt 0" in row["reason"]


def test_another_systems_tokens_may_differ_and_are_reported():
    full, theirs = cell(), cell(system="llama.cpp")
    frame = records_frame([record(full), record(theirs, 80.0, tokens=[7] * 11)], HOME)
    row = only(frame, system="llama.cpp")
    assert (row["status"], row["answer"], row["matched"]) == ("ok", "differs", 0.0)
    assert row["tok_s"] == pytest.approx(80.0)
    assert only(frame, system="full")["answer"] == "reference"


def test_answers_are_compared_across_lanes_but_not_across_questions():
    full, ours = cell(), cell(system="lru", residency=0.25, **EMULATED)
    frame = records_frame([record(full), record(ours)], HOME)
    assert only(frame, system="lru")["answer"] == "same"
    frame = records_frame([record(cell(dataset="gsm8k")), record(ours)], HOME)
    assert only(frame, system="lru")["answer"] == "unknown"


def test_hidden_tokens_are_unknown_not_different():
    frame = records_frame([record(cell()), record(cell(system="vLLM"), tokens=[None] * 11)], HOME)
    assert only(frame, system="vLLM")["answer"] == "unknown"


def test_a_missing_hit_rate_keeps_its_reason_and_is_never_zero():
    point = cell(system="KTransformers")
    frame = records_frame([record(point, stats={"hit_rate": {"missing": "it exposes none"}})], HOME)
    assert math.isnan(frame.iloc[0]["hit_rate"]) and frame.iloc[0]["hit_note"] == "it exposes none"


def test_titles_come_from_the_declarations_and_undeclared_models_keep_their_name():
    frame = records_frame([record(cell(system="lru")), record(cell(model="/some/folder"))], HOME)
    assert list(frame["system_title"]) == ["LRU (FreeToken's policy)", "FullLoad"]
    assert list(frame["model_title"]) == ["Reference model", "/some/folder"]


def test_no_records_give_an_empty_frame_with_all_columns():
    empty, full = records_frame([], HOME), records_frame([record(cell())], HOME)
    assert len(empty) == 0 and list(empty.columns) == list(full.columns)
    assert list(summarise(empty).columns) == COLUMNS


def _repeats(point, speeds: list[float | None]) -> list[Record]:
    crash = Status("crash", "killed")
    return [record(point, s or 1.0, repeat, None if s else crash) for repeat, s in enumerate(speeds)]


def test_summary_is_the_median_within_its_interval():
    summary = summarise(records_frame(_repeats(cell(), [30.0, 10.0, 20.0, 50.0, 40.0]), HOME))
    row = summary.iloc[0]
    assert row["tok_s"] == pytest.approx(30.0) and row["repeats"] == 5
    assert 10.0 <= row["tok_s_low"] <= 30.0 <= row["tok_s_high"] <= 50.0 and row["tok_s_low"] < row["tok_s_high"]


def test_failed_repeats_are_counted_and_not_averaged():
    row = summarise(records_frame(_repeats(cell(), [30.0, None, 32.0]), HOME)).iloc[0]
    assert row["status"] == "ok" and row["tok_s"] == pytest.approx(31.0)
    assert row["reason"] == "1 of 3 repeats gave no result (1 crash): killed"


def test_one_repeat_has_no_interval():
    row = summarise(records_frame(_repeats(cell(), [30.0]), HOME)).iloc[0]
    assert row["tok_s"] == pytest.approx(30.0) and math.isnan(row["tok_s_low"]) and math.isnan(row["tok_s_high"])


def test_a_cell_that_never_ran_keeps_status_reason_and_hint():
    point = cell(system="FreeToken", residency=0.25)
    row = summarise(records_frame([record(point, status=NEEDS_GPU)], HOME)).iloc[0]
    assert (row["status"], row["reason"], row["hint"]) == (NEEDS_GPU.kind, NEEDS_GPU.reason, NEEDS_GPU.hint)
    assert math.isnan(row["tok_s"]) and math.isnan(row["share"])


def test_hosts_are_summed_up_apart():
    records = [record(cell(), 10.0), record(cell(), 90.0, host="faster-host")]
    summary = summarise(records_frame(records, HOME))
    assert dict(zip(summary["host"], summary["tok_s"].round(), strict=True)) == {
        ENVIRONMENT["host"]: 10.0, "faster-host": 90.0,
    }  # fmt: skip


def test_every_cell_of_the_quick_profile_becomes_one_row():
    cells = load_suite(HOME.suites / "fig6.toml").cells("quick")
    records = [record(replace(point, prompts=1, decode_tokens=3), status=NEEDS_GPU) for point in cells]
    assert len(summarise(records_frame(records, HOME))) == len(cells)
