"""Protects what simulated cells may change: one grammar, strict, only in their lane, and in the cell's key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.paths import find_home
from seqmoe.spec.suite import Block, load_suite
from seqmoe.spec.what_if import WhatIf, what_if

HOME = find_home(Path(__file__).parent)


def test_a_link_or_a_recall_is_read_and_nothing_else() -> None:
    assert what_if("") == WhatIf()
    assert what_if("link=12.5") == WhatIf(link=12.5) and what_if("recall=0.9") == WhatIf(recall=0.9)
    for wrong, message in (
        ("lnk=5", "did you mean 'link'"),
        ("link", "is not a number"),
        ("link=0", "must be positive"),
        ("link=inf", "must be positive"),
        ("recall=1.5", "at most 1"),
        ("recall=nan", "must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            what_if(wrong)


def test_another_link_keeps_the_share_that_other_traffic_leaves() -> None:
    hardware = load_hardware(HOME, "rtx4090")
    slow, fast = (WhatIf(link=rate).of(hardware) for rate in (5.0, 100.0))
    assert (slow.link_sustained, slow.link_peak, slow.link_contended) == (5.0, 31.5, 3.0)
    assert (fast.link_sustained, fast.link_peak, fast.link_contended) == (100.0, 100.0, 60.0)
    assert WhatIf(recall=0.9).of(hardware) is hardware
    assert WhatIf(link=5.0).of(replace(hardware, link_contended=None)).link_contended is None


def test_a_changed_cell_is_another_cell_and_an_unchanged_one_keeps_its_key() -> None:
    cells = load_suite(HOME.suites / "sweep.toml").cells("quick")
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.what_if for cell in cells if cell.panel == "link"} >= {"link=25", "link=200"}
    assert all(cell.what_if in cell.detail for cell in cells)
    first = cells[0]
    assert replace(first, what_if="").key != first.key
    blocks = load_suite(HOME.suites / "fig6.toml").cells("simulated")
    assert {cell.what_if for cell in blocks} == {""}


def test_only_simulated_cells_can_differ() -> None:
    values = dict(panel="p", systems=("seqmoe",), models=("reference",), residency=(0.5,), dataset="mixed", prompts=1,
                  decode_tokens=(8,))  # fmt: skip
    with pytest.raises(ValueError, match="only 'simulated' can differ"):
        Block(lane="measured", what_if=("link=5",), **values)
    with pytest.raises(ValueError, match="what_if is empty"):
        Block(lane="simulated", hardware="rtx4090", what_if=(), **values)
