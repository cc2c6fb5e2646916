"""Protects Algorithm 1: the most confident set that meets all deadlines, then the earliest deadline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import schedule as twin

from seqmoe.core.schedule import ORDERS, feasible_set, feasible_within, first_task, select

# Few distinct values, so that ties are common; binary fractions, so that sums are exact.
tasks = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 16).map(lambda n: n / 16)), max_size=12)
budgets = st.floats(0, 3, allow_nan=False)


def arrays(pairs):
    deadline = np.array([due for due, _ in pairs], dtype=np.int64)
    return deadline, np.array([confidence for _, confidence in pairs], dtype=np.float32)


def test_table_2_of_the_paper():
    deadline = np.array([1, 2, 2, 3, 3, 3])
    confidence = np.array([0.55, 0.90, 0.40, 0.75, 0.70, 0.30], dtype=np.float32)
    chosen = feasible_within(deadline, confidence, np.array([0, 1, 3, 4]))
    assert "".join("ABCDEF"[index] for index in chosen) == "ABDE"
    assert confidence[chosen].sum() == pytest.approx(2.90)


@settings(deadline=None, max_examples=300)
@given(tasks, st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_greedy_equals_exhaustive_search(pairs, steps):
    deadline, confidence = arrays(pairs)
    capacity = np.cumsum(steps)
    chosen = feasible_within(deadline, confidence, capacity).tolist()
    assert twin.meets_deadlines(chosen, deadline, lambda due: capacity[due])
    assert confidence[chosen].sum() == twin.best_total(deadline, confidence, lambda due: capacity[due])
    assert chosen == twin.greedy(deadline, confidence, lambda due: capacity[due])


@given(tasks, st.integers(0, 4), st.floats(-2, 3), budgets)
def test_select_equals_the_twin(pairs, position, current, average):
    deadline, confidence = arrays(pairs)
    chosen, task = twin.select(deadline.tolist(), confidence.tolist(), position, current, average)
    assert feasible_set(deadline, confidence, position, current, average).tolist() == chosen
    assert select(deadline, confidence, position, current, average) == task


@pytest.mark.parametrize("order", ORDERS[1:])
@given(tasks, st.integers(0, 4), st.integers(1, 50), st.none() | st.integers(0, 6))
def test_the_rivals_orders_equal_the_twin(order, pairs, position, layers, earliest):
    deadline, confidence = arrays(pairs)
    expected = twin.first_task(order, deadline.tolist(), confidence.tolist(), position, layers, earliest)
    assert first_task(order, deadline, confidence, position, layers, earliest) == expected


def test_what_each_order_looks_at():
    # Due soon and unlikely, due later and likely, due last and likeliest.
    deadline, confidence = np.array([3, 5, 9]), np.array([0.3, 0.7, 0.8], dtype=np.float32)
    first = {order: first_task(order, deadline, confidence, 0, 9) for order in ORDERS[1:]}
    # MoE-Infinity: 0.3 * (1 - 3/10) = 0.21, 0.7 * (1 - 5/10) = 0.35, 0.8 * (1 - 9/10) = 0.08.
    assert first == {"infinity": 1, "promoe": 0, "confidence": 2, "edf": 0}
    same = np.array([4, 4])
    assert first_task("promoe", same, confidence[:2], 0, 9) == 1
    assert first_task("edf", same, confidence[:2], 0, 9) == 0


def test_a_task_due_by_the_next_layer_is_no_candidate():
    assert select(np.array([10, 11]), np.array([0.9, 0.9], dtype=np.float32), 10, 5.0, 5.0) == -1
    assert select(np.array([10, 11, 12]), np.array([0.9, 0.9, 0.1], dtype=np.float32), 10, 5.0, 5.0) == 2


def test_an_overdrawn_budget_still_lets_one_transfer_go():
    deadline, confidence = np.array([5, 5]), np.array([0.2, 0.7], dtype=np.float32)
    assert feasible_set(deadline, confidence, 0, -4.0, 0.0).tolist() == [1]


def test_many_tasks_far_apart():
    rng = np.random.default_rng(0)
    deadline = rng.integers(0, 3000, 300)
    confidence = rng.random(300, dtype=np.float32)
    chosen, task = twin.select(deadline.tolist(), confidence.tolist(), 100, 1.5, 0.05)
    assert feasible_set(deadline, confidence, 100, 1.5, 0.05).tolist() == chosen
    assert select(deadline, confidence, 100, 1.5, 0.05) == task


@pytest.mark.parametrize(
    ("deadline", "confidence", "options"),
    [
        ([2, 3], [0.5], {}),
        ([2], [np.nan], {}),
        ([2**21], [0.5], {}),
        ([2], [0.5], {"position": -1}),
        ([2], [0.5], {"budget_average": -0.1}),
        ([2], [0.5], {"budget_average": np.nan}),
        ([2], [0.5], {"budget_current": np.inf}),
    ],
)
def test_wrong_arguments_are_refused(deadline, confidence, options):
    arguments = {"position": 0, "budget_current": 1.0, "budget_average": 1.0} | options
    with pytest.raises(ValueError):
        select(np.array(deadline), np.array(confidence, dtype=np.float32), **arguments)


@pytest.mark.parametrize("capacity", [[0, 2, 1], [-1, 0, 0], [0, 1]])
def test_wrong_capacities_are_refused(capacity):
    with pytest.raises(ValueError):
        feasible_within(np.array([2]), np.array([0.5], dtype=np.float32), np.array(capacity))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"order": "matroid"}, "order"), ({"layers": 0}, "layers"), ({"confidence": [np.nan, 0.1]}, "number")],
)
def test_wrong_orders_are_refused(change, message):
    good = {"order": "edf", "deadline": [2, 3], "confidence": [0.5, 0.5], "position": 0, "layers": 4}
    arguments = good | change
    arguments["deadline"] = np.array(arguments["deadline"])
    arguments["confidence"] = np.array(arguments["confidence"], dtype=np.float32)
    with pytest.raises(ValueError, match=message):
        first_task(**arguments)
