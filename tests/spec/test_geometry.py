"""Residency becomes slots by one rule, positions and keys are unique, and what cannot work is refused with a number."""

from __future__ import annotations

import pytest

from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SYSTEMS, SystemSpec, system


def test_slots_are_the_rounded_share_of_all_experts() -> None:
    geometry = Geometry(layers=48, experts=128, top_k=8)
    assert geometry.total_experts == 6144
    assert [geometry.slots(r) for r in (0.15, 0.25, 0.35, 0.45, 1.0)] == [922, 1536, 2150, 2765, 6144]


@pytest.mark.parametrize("residency", [0, -0.1, 1.5])
def test_residency_outside_its_range_is_refused(residency: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
        Geometry(48, 128, 8).slots(residency)


def test_too_few_slots_for_one_token_names_the_smallest_legal_residency() -> None:
    geometry = Geometry(layers=2, experts=8, top_k=4)
    with pytest.raises(ValueError, match=r"smallest legal residency is 0\.2500"):
        geometry.slots(0.1)
    assert geometry.slots(0.25) == 4


def test_a_batch_needs_slots_for_all_its_tokens_but_never_more_than_a_layer_has() -> None:
    geometry = Geometry(layers=43, experts=256, top_k=6)
    assert [geometry.least_slots(batch) for batch in (1, 4, 42, 43, 100)] == [6, 24, 252, 256, 256]
    with pytest.raises(ValueError, match=r"11 slots cannot hold the 24 experts of a batch of 4") as refused:
        geometry.slots(0.001, batch=4)
    least = float(str(refused.value).rsplit(" ", 1)[1])
    assert geometry.slots(least, batch=4) >= 24


def test_keys_and_positions_are_unique() -> None:
    geometry = Geometry(layers=3, experts=5, top_k=2)
    assert sorted(geometry.key(a, b) for a in range(3) for b in range(5)) == list(range(15))
    assert [geometry.position(s, p) for s in range(2) for p in range(3)] == list(range(6))


@pytest.mark.parametrize("sizes", [(0, 8, 2), (2, 0, 2), (2, 8, 0), (2, 8, 9)])
def test_impossible_geometries_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"must be at least 1|has only"):
        Geometry(*sizes)


def test_systems_are_rows_of_one_table_and_a_forecast_needs_a_predictor() -> None:
    assert system("seqmoe") is SYSTEMS["seqmoe"]
    with pytest.raises(ValueError, match="did you mean 'seqmoe'"):
        system("seqmo")
    with pytest.raises(ValueError, match="needs a predictor"):
        SystemSpec("x", "X", retention="cache_score")
