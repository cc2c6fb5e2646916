"""Protects that the simulator says what our own runtime measures, on published records, with nothing fitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqmoe.harness.emulated_lane import emulated_points, emulated_records
from seqmoe.harness.store import read_records
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)
RECORDS = HOME.work / "results" / "published" / "cpu-amd-epyc-2c" / "fig6.jsonl"


@pytest.fixture(scope="module")
def points():
    if not RECORDS.is_file():
        pytest.skip("the published records are not in this tree")
    kept = [record for record in read_records(RECORDS) if record.cell.system in ("full", "lru", "seqmoe", "naive")
            and (record.cell.residency in (0.25, 0.45, 1.0))]  # fmt: skip
    return {(point.system, point.predictor, point.residency): point for point in emulated_points(HOME, kept)}


def test_lru_and_loading_everything_are_what_was_measured(points) -> None:
    for point in points.values():
        if point.system in ("lru", "naive"):
            assert point.simulated == pytest.approx(point.measured, rel=0.01)
            assert point.simulated_hits == pytest.approx(point.measured_hits, abs=0.005)


def test_seqmoe_is_within_a_tenth_and_its_hit_rate_within_two_points(points) -> None:
    ours = [point for point in points.values() if point.system == "seqmoe"]
    assert {point.predictor for point in ours} == {"first_order", "mamba2"}
    for point in ours:
        assert abs(point.error) < 0.10
        assert point.simulated_hits == pytest.approx(point.measured_hits, abs=0.02)


def test_systems_stand_in_the_measured_order(points) -> None:
    half = [point for point in points.values() if point.residency == 0.45]
    assert len(half) == 4
    assert sorted(half, key=lambda one: one.measured) == sorted(half, key=lambda one: one.simulated)


def test_records_of_other_weights_and_lanes_are_left_out() -> None:
    assert emulated_points(HOME, []) == []
    assert all(record.cell.lane == "emulated" for record in emulated_records(HOME))
