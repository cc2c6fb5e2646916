"""Protects table 2: the paper's three sets, on a timeline that yields them."""

from __future__ import annotations

import pytest

from seqmoe.simulate import table2 as module
from seqmoe.simulate.table2 import table2


def test_the_sets_of_the_paper():
    rows = {row.order: (row.chosen, row.confidence) for row in table2()}
    assert rows["optimal"] == rows["matroid"] == ("ABDE", pytest.approx(2.90))
    assert rows["infinity"] == ("BDEF", pytest.approx(2.65))
    assert rows["promoe"] == ("ABCD", pytest.approx(2.60))


def test_each_half_of_the_order_alone_is_no_better():
    rows = {row.order: (row.chosen, row.confidence) for row in table2()}
    # The most confident in time are B, then D and E, then F: A and C have expired. In order of deadlines: A, B, C, D.
    assert rows["confidence"] == ("BDEF", pytest.approx(2.65))
    assert rows["edf"] == ("ABCD", pytest.approx(2.60))


@pytest.mark.parametrize("layers", [3, 4, 24, 48, 1000])
def test_moe_infinitys_set_holds_for_any_model_of_three_layers_or_more(monkeypatch, layers):
    monkeypatch.setattr(module, "LAYERS", layers)
    assert {row.order: row.chosen for row in table2()}["infinity"] == "BDEF"


def test_two_layers_are_too_few_for_it(monkeypatch):
    monkeypatch.setattr(module, "LAYERS", 2)
    assert {row.order: row.chosen for row in table2()}["infinity"] != "BDEF"
