"""What ran on earlier weights or elsewhere is left out and counted, never mixed with what ran since."""

from __future__ import annotations

import dataclasses

from harness_samples import record

from seqmoe.harness.conditions import newest_only
from seqmoe.harness.record import Status


def made(digest, predictor=None, host="h", device="cpu", started="2026-01-01T00:00:00Z", profile=None, **changes):
    weights = {"model": digest, "predictor": predictor} | ({"profile": profile} if profile else {})
    environment = {"host": host, "device": device, "weights": weights}
    return dataclasses.replace(record(environment=environment, **changes), started=started)


def test_the_newest_record_of_host_and_model_decides_for_all_systems() -> None:
    old = [made("old", system="full", residency=1.0), made("old", system="lru"), made("old", system="llama.cpp")]
    new = made("new", system="lru")
    others = [made("old", host="other"), made("old", model="another")]
    found = newest_only([*old, new, *others])
    assert found.records == (new, *others)
    assert found.remarks == ("3 older records are left out: made with earlier weights of tiny",)
    assert newest_only([*old, *others]).records == (*old, *others)
    assert newest_only([]).records == () and newest_only([new]).remarks == ()


def test_newest_is_what_was_started_last_whichever_file_it_comes_from() -> None:
    late = made("new", started="2026-01-02T00:00:00Z")
    early = made("old", started="2026-01-01T00:00:00Z", residency=0.5)
    assert newest_only([late, early]).records == newest_only([early, late]).records == (late,)


def test_a_new_predictor_counts_for_the_systems_that_have_one() -> None:
    lru, old = made("m", system="lru"), made("m", "p", system="seqmoe")
    new = made("m", "q", system="seqmoe", residency=0.5)
    assert newest_only([lru, old, new]).records == (lru, new)
    assert newest_only([old, new, lru]).records == (new, lru)


def test_a_new_profile_counts_for_the_systems_that_read_one() -> None:
    lru, old = made("m", system="lru"), made("m", system="popularity")
    new = made("m", system="popularity", residency=0.5, profile="counted")
    assert newest_only([lru, old, new]).records == (lru, new), "what does not tell its profile goes as well"


def test_records_that_do_not_tell_their_weights_go_when_newer_ones_do() -> None:
    silent, telling = record(environment={"host": "h"}), made("m", residency=0.5)
    assert newest_only([silent]).records == (silent,)
    assert newest_only([silent, telling]).records == (telling,)


def test_a_model_that_was_not_there_decides_nothing() -> None:
    ran = made("m")
    absent = made(None, residency=0.5, status=Status("not_installed", "no weights"))
    assert newest_only([ran, absent]).records == (ran, absent)


def test_a_cell_on_two_devices_keeps_the_newest_only() -> None:
    cpu, gpu = made("m", system="Rival"), made("m", system="Rival", device="cuda", repeat=1)
    beside = made("m", system="lru")
    found = newest_only([cpu, gpu, beside])
    assert found.records == (gpu, beside)
    assert found.remarks == ("1 older record is left out: made on another device than the newest of the same cell",)
