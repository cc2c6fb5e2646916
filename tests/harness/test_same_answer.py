"""What offloading says is held to full load, token by token, and a difference makes the result invalid."""

from __future__ import annotations

import pytest
from harness_samples import record, timed

from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import Status
from seqmoe.harness.same_answer import Answer, compare, full_load, of_device, verdict


def on(digest):
    return {"weights": {"model": digest, "predictor": None}}


def said(*prompts, **changes):
    changes.setdefault("environment", on("a"))
    return record([timed([1] * (len(p) - 1), tokens=p) for p in prompts], **changes)


FULL = said([1, 2, 3, 4], [5, 6, 7, 8], system="full", residency=1.0)


def test_the_same_tokens_are_the_same_answer() -> None:
    answer = compare(said([1, 2, 3, 4], [5, 6, 7, 8]), FULL)
    assert answer == Answer(1.0, 4.0, None) and answer.same


def test_a_difference_is_told_with_its_place_and_extent() -> None:
    answer = compare(said([1, 2, 3, 4], [5, 6, 0, 8]), FULL)
    assert answer == Answer(identical=0.5, common_prefix=3.0, first=(1, 2)) and not answer.same


@pytest.mark.parametrize("change", [{"model": "other"}, {"dataset": "other"}, {"seed": 1}, {"batch": 2}])
def test_only_full_load_of_the_same_workload_counts(change) -> None:
    ours = said([1, 2, 3, 4], [5, 6, 7, 8], **change)
    assert full_load([FULL], ours.cell, "a") is None
    assert full_load([FULL], said([1, 2, 3], [4, 5, 6]).cell, "a") is None
    assert isinstance(compare(ours, full_load([FULL], ours.cell, "a")), Missing)


def test_full_load_of_another_lane_counts_and_the_newest_one_decides() -> None:
    newer = said([0, 0, 0, 0], [5, 6, 7, 8], system="full", residency=1.0, lane="emulated", hardware="card")
    assert full_load([FULL, newer], said([1, 2, 3, 4], [5, 6, 7, 8]).cell, "a") is newer


def test_full_load_in_the_cells_own_mode_goes_before_a_newer_one_in_another() -> None:
    graph, sync = (said([1], system="full", residency=1.0, execution=mode) for mode in ("graph", "sync"))
    assert full_load([graph, sync], said([1], execution="graph").cell, "a") is graph
    assert full_load([sync, graph], said([1], execution="graph").cell, "a") is graph
    assert full_load([graph, sync], said([1], execution="eager").cell, "a") is sync


def test_full_load_on_another_device_is_no_reference() -> None:
    cpu, cuda = (said([1], system="full", residency=1.0, environment=on("a") | {"device": d}) for d in ("cpu", "cuda"))
    assert of_device([cpu, cuda], "cpu") == [cpu] and of_device([cpu, cuda], "cuda") == [cuda]


def test_full_load_on_other_weights_is_no_reference() -> None:
    ours = said([1, 2, 3, 4], [5, 9, 7, 8])
    retrained = said([1, 2, 3, 4], [5, 9, 7, 8], system="full", residency=1.0, environment=on("b"))
    assert full_load([FULL, retrained], ours.cell, "a") is FULL
    assert full_load([FULL, retrained], ours.cell, "b") is retrained
    assert full_load([FULL], ours.cell, "b") is None and full_load([FULL], ours.cell, None) is None
    assert verdict(ours.cell, ours.status, ours.observations, [FULL], "b").ok
    assert verdict(ours.cell, ours.status, ours.observations, [retrained, FULL], "b").ok


def test_our_own_system_becomes_invalid_when_it_differs() -> None:
    ours = said([1, 2, 3, 4], [5, 9, 7, 8])
    status = verdict(ours.cell, ours.status, ours.observations, [FULL], "a")
    assert status.kind == "invalid"
    assert "answer differs from full load at token 1 of prompt 1" in status.reason and "50%" in status.reason


def test_full_load_is_the_measure_and_never_held_to_an_earlier_one() -> None:
    again = said([1, 2, 3, 4], [5, 6, 7, 9], system="full", residency=1.0)
    assert verdict(again.cell, again.status, again.observations, [FULL], "a").ok


def test_a_worker_that_finds_the_difference_itself_is_believed() -> None:
    ours = said([1, 2, 3, 4], [5, 6, 7, 8], stats={"same_answer": False})
    assert verdict(ours.cell, ours.status, ours.observations, [], "a").kind == "invalid"


def test_without_full_load_and_for_others_the_status_stays() -> None:
    ours = said([1, 2, 3, 4], [5, 9, 7, 8])
    assert verdict(ours.cell, ours.status, ours.observations, [], "a").ok
    theirs = said([1, 2, 3, 4], [5, 9, 7, 8], system="llama.cpp")
    assert verdict(theirs.cell, theirs.status, theirs.observations, [FULL], "a").ok
    failed = Status("oom", "host")
    assert verdict(ours.cell, failed, ours.observations, [FULL], "a") == failed


def test_hidden_tokens_cannot_be_compared() -> None:
    assert isinstance(compare(said([None, 2, 3, 4], [5, 6, 7, 8], system="vLLM"), FULL), Missing)
