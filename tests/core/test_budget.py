"""Protects the transfer budget: it converges to the rate of transfers really made, whatever that is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqmoe.core.budget import TransferBudget


def run(rate, layers=4000, start=3.0, alpha=0.02):
    """A link that is always busy; position is looked at after each transfer, as the worker does."""
    budget, seen, settled = TransferBudget(start, alpha), 0, []
    for transfer in range(1, math.floor(layers * rate)):
        budget.spend()
        position = math.floor(transfer / rate)
        if position > seen:
            budget.advance(position - seen)
            seen = position
            if position > layers / 2:
                settled.append(budget.average)
    return sum(settled) / len(settled)


@pytest.mark.parametrize("rate", [0.25, 0.4, 0.6, 1.0, 1.39, 2.5])
def test_converges_to_the_true_rate(rate):
    assert run(rate) == pytest.approx(rate, rel=0.05)


def test_one_layer_is_the_corrected_algorithm_1():
    budget = TransferBudget(2.0, alpha=0.1)
    budget.spend()
    assert budget.current == 1.0
    budget.advance(1)
    assert budget.average == pytest.approx(2.0 - 0.1 * 1.0)
    assert budget.current == budget.average


def test_the_sign_printed_in_the_paper_would_run_away():
    budget, printed = TransferBudget(2.0), 2.0
    for _ in range(100):
        budget.spend()
        budget.advance(1)
        printed += 0.1 * (printed - 1)
    assert budget.average == pytest.approx(1.0, abs=0.001)
    assert printed > 1000


def test_current_may_fall_below_zero_and_raises_the_average():
    budget = TransferBudget(1.0)
    for _ in range(3):
        budget.spend()
    assert budget.current == -2.0
    budget.advance(1)
    assert budget.average == pytest.approx(1.2)


def test_idle_time_moves_nothing_but_refills():
    budget = TransferBudget(1.5)
    budget.spend()
    budget.advance(7, busy=False)
    assert (budget.average, budget.current) == (1.5, 1.5)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=40), st.floats(0, 5), st.floats(0.01, 1))
def test_the_average_stays_between_what_was_seen(steps, start, alpha):
    budget = TransferBudget(start, alpha)
    rates = [start]
    for spent, layers in steps:
        for _ in range(spent):
            budget.spend()
        budget.advance(layers)
        rates.append(spent / layers)
        assert min(rates) - 1e-9 <= budget.average <= max(rates) + 1e-9


@pytest.mark.parametrize(
    "call",
    [
        lambda: TransferBudget(-1.0),
        lambda: TransferBudget(math.nan),
        lambda: TransferBudget(1.0, alpha=0.0),
        lambda: TransferBudget(1.0, alpha=1.5),
        lambda: TransferBudget(1.0).advance(0),
    ],
)
def test_wrong_arguments_are_refused(call):
    with pytest.raises(ValueError):
        call()
