"""Protects task dispatch: the likeliest absent experts of each layer, and no more than the worker has room for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqmoe.core.control import POSITION, TAKEN, TASKS, Control, control_words
from seqmoe.runtime.kernels import dispatch
from seqmoe.runtime.kernels.table import Counter, DeviceTable

LAYERS, EXPERTS = 6, 11


def expected(table, probability, first, choices, position, room):
    """Plainly: choice by choice over the layers."""
    tasks = []
    ranked = [
        sorted(range(EXPERTS), key=lambda expert, row=row: (-row[expert], expert)) for row in probability.tolist()
    ]
    for choice in range(choices):
        for index, order in enumerate(ranked):
            layer, expert = first + index, order[choice]
            deadline = (position // LAYERS + 1) * LAYERS + layer
            if deadline > position + 1 and int(table.slot_of[layer, expert]) < 0 and len(tasks) < room:
                tasks.append((layer * EXPERTS + expert, deadline, float(probability[index, expert])))
    return tasks


@pytest.mark.parametrize(
    ("first", "last", "choices", "layer", "ring", "taken"),
    [(0, 6, 4, 5, 64, 0), (0, 3, 11, 2, 64, 0), (3, 6, 2, 5, 64, 0), (0, 3, 5, 2, 8, 0), (0, 3, 5, 2, 8, 3)],
)
def test_tasks_are_the_likeliest_absent_experts(first, last, choices, layer, ring, taken):
    random = np.random.default_rng(choices)
    table, words = DeviceTable.empty(LAYERS, EXPERTS, 20), torch.zeros(control_words(ring), dtype=torch.int64)
    control = Control.prepare(words.numpy(), ring)
    control.tasks[:] = -99
    table.slot_of[torch.from_numpy(random.random((LAYERS, EXPERTS)) < 0.3)] = 1
    position = 2 * LAYERS + layer
    table.progress[POSITION], table.progress[TASKS], table.progress[TAKEN] = position, taken, taken
    chances = random.choice([0.0, 0.1, 0.25, 0.5, 0.9], size=(last - first, EXPERTS)).astype(np.float32)
    probability = torch.from_numpy(chances)
    tasks = expected(table, probability, first, choices, position, ring)
    dispatch.launch(words, table, ring, probability, first, choices)
    assert int(words[TASKS]) == taken + len(tasks) == int(table.progress[TASKS])
    assert int(table.counters[Counter.TASKS]) == len(tasks)
    told = [control.tasks[number % ring] for number in range(taken, taken + len(tasks))]
    confidence = [float(np.uint32(entry[2]).view(np.float32)) for entry in told]
    assert [(int(entry[0]), int(entry[1]), value) for entry, value in zip(told, confidence, strict=True)] == tasks
    assert (control.tasks == -99).all(axis=1).sum() == ring - len(tasks)


def test_what_is_no_number_is_no_task():
    table, words = DeviceTable.empty(4, 4, 2), torch.zeros(control_words(8), dtype=torch.int64)
    control = Control.prepare(words.numpy(), 8)
    table.progress[POSITION] = 3
    probability = torch.tensor([[0.1, float("nan"), 0.3, 0.2], [0.0, *[float("nan")] * 3]])
    dispatch.launch(words, table, 8, probability, 2, 2)
    assert control.tasks[: int(words[TASKS]), 0].tolist() == [10, 12, 11]


def test_a_forecast_of_another_model_is_refused():
    table, words = DeviceTable.empty(2, 4, 2), torch.zeros(control_words(8), dtype=torch.int64)
    for first, shape in ((0, (2, 5)), (1, (2, 4)), (-1, (1, 4))):
        with pytest.raises(ValueError, match="probability"):
            dispatch.launch(words, table, 8, torch.zeros(shape), first, 2)
