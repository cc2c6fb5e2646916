"""An emulated link that was a quarter off what was asked gives no result, and the reason says what to do."""

from __future__ import annotations

import dataclasses

import pytest
from harness_samples import record

from seqmoe.harness.link_check import may_pass_later, verdict
from seqmoe.harness.record import Status

EMULATED = {"lane": "emulated", "hardware": "card"}


def judged(reached, asked=0.9, **changes):
    item = record(stats={"overlap_ratio": asked, "overlap_ratio_achieved": reached}, **(EMULATED | changes))
    return dataclasses.replace(item, status=verdict(item.cell, item.status, item.observations))


def test_the_reason_names_both_ratios_and_the_remedy() -> None:
    assert judged(0.47).status == Status(
        "invalid",
        "the link reached 0.47 experts a layer, 0.90 were asked: the machine was busy; run again when it is idle",
    )


@pytest.mark.parametrize(("reached", "ok"), [(0.68, True), (0.67, False), (1.12, True), (1.13, False), (0.9, True)])
def test_a_quarter_either_way_is_allowed(reached, ok) -> None:
    assert judged(reached).status.ok == ok
    assert may_pass_later(judged(reached)) != ok


def test_only_an_emulated_row_with_both_ratios_is_judged() -> None:
    assert judged(0.1, lane="measured", hardware="host").status.ok
    assert judged(None).status.ok and judged(0.1, asked=None).status.ok
    assert judged({"missing": "no transfer"}).status.ok


@pytest.mark.parametrize(("late", "ok"), [(0.0, True), (0.05, True), (0.051, False), (0.6, False)])
def test_one_layer_in_twenty_may_end_late(late, ok) -> None:
    item = record(stats={"overrun_share": late, "dilation": 5.0}, **EMULATED)
    status = verdict(item.cell, item.status, item.observations)
    assert status.ok == ok
    assert may_pass_later(dataclasses.replace(item, status=status)) != ok
    if not ok:
        assert f"{late:.1%} of the layers" in status.reason and "dilation 5.0" in status.reason


def test_other_failures_stay_and_are_final() -> None:
    item = judged(0.47)
    crash = Status("crash", "tail")
    assert verdict(item.cell, crash, item.observations) == crash
    assert not may_pass_later(dataclasses.replace(item, status=crash))
    assert not may_pass_later(dataclasses.replace(item, status=Status("invalid", "answer differs")))
