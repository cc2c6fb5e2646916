"""The word *faster* needs eight repeats of both, significance and more than five percent; everything else says why."""

from __future__ import annotations

from report_samples import HOME, cell, record

from seqmoe.report.frame import records_frame
from seqmoe.report.pace import pace

EMULATED = {"lane": "emulated", "hardware": "rtx4090"}


def said(speeds: dict[str, float], repeats: int, residencies=(0.25,), **changes):
    records = [
        record(cell(system=system, residency=residency, **changes), speed + 0.01 * repeat, repeat)
        for residency in residencies
        for system, speed in speeds.items()
        for repeat in range(repeats)
    ]
    return pace(records_frame(records, HOME))


def test_eight_repeats_with_a_clear_lead_are_faster():
    assert said({"seqmoe": 40.0, "lru": 30.0}, 8, (0.25, 0.45), **EMULATED) == [
        "SeqMoE is faster than LRU (FreeToken's policy) in 2 of 2 cells (emulated, rtx4090)"
    ]


def test_what_is_not_shown_is_not_claimed():
    (few,) = said({"seqmoe": 40.0, "lru": 30.0}, 5)
    assert few.startswith("SeqMoE is not to be called faster than LRU (FreeToken's policy) in any of 1 cell ")
    assert few.endswith("(measured, CPU): 5 repeats; 8 of both are needed")
    (slower,) = said({"seqmoe": 30.0, "lru": 40.0}, 8)
    assert "not to be called faster" in slower


def test_full_load_is_no_rival_and_other_cells_are_not_compared():
    assert said({"seqmoe": 30.0, "full": 40.0}, 8) == []
    alone = [record(cell(system="seqmoe", residency=0.25)), record(cell(system="lru", residency=0.45))]
    assert pace(records_frame(alone, HOME)) == [] and pace(records_frame([], HOME)) == []


def test_what_was_computed_is_not_tested_for_being_faster():
    assert said({"seqmoe": 40.0, "lru": 30.0}, 8, lane="simulated", hardware="rtx4090") == []
