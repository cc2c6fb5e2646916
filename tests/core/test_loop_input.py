"""Protects the event loop's input: what is wrong is refused before anything runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from loop_samples import EXPERTS, LAYERS, RANGES, pool_of

from seqmoe.core.loop import EventLoop, PrefetchRules

GOOD = {"step": [0, 0], "layer": [0, 2], "start": [0, 2, 4], "expert": [0, 1, 2, 3]}
ROWS = np.zeros((1, LAYERS, EXPERTS))
TASK = {"task_expert": np.zeros((1, LAYERS, 1)), "task_confidence": np.zeros((1, LAYERS, 1))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": [0]}, "steps"),
        ({"step": [-1, 0]}, "ascend"),
        ({"layer": [2, 2]}, "ascend"),
        ({"layer": [0, 3]}, "geometry"),
        ({"expert": [0, 1, 5, 3]}, "geometry"),
        ({"expert": [0, 1, 2, 2]}, "twice"),
        ({"start": [0, 1, 4]}, "needs 3"),
        ({"start": [0, 3, 2]}, "start"),
        ({"start": []}, "start"),
        ({"demand": np.ones(3)}, "demand"),
        ({"accessed": np.zeros(3)}, "accessed"),
        ({"used": ROWS[:, 1:]}, "used"),
        ({"used": ROWS, "accessed": np.zeros(4)}, "one of them"),
        ({"forecast": ROWS}, "ranges"),
        ({"forecast": ROWS, "ranges": ((0, 4),)}, "ranges"),
        ({"ranges": RANGES, "task_expert": TASK["task_expert"]}, "both"),
        ({"ranges": RANGES, **TASK, "task_expert": TASK["task_expert"] + 5}, "geometry"),
        ({"ranges": RANGES, **TASK, "task_confidence": TASK["task_confidence"] * np.nan}, "not a number"),
        ({"ranges": RANGES, **TASK, "task_confidence": np.zeros((1, LAYERS, 2))}, "task_confidence"),
        ({"ranges": RANGES, **TASK, "task_expert": np.zeros((2, LAYERS, 1))}, "task_expert"),
    ],
)
def test_wrong_blocks_are_refused_before_anything_runs(change, message):
    loop = EventLoop(LAYERS, EXPERTS, 2, PrefetchRules(1.0))
    arrays = {name: np.array(value) if isinstance(value, list) else value for name, value in (GOOD | change).items()}
    with pytest.raises(ValueError, match=message):
        loop.feed(**arrays)
    assert pool_of(loop) == {}


def test_wrong_loops_are_refused():
    for arguments in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1, None, False, (3, 3))):
        with pytest.raises(ValueError):
            EventLoop(*arguments)
    changes = ({"link": -1.0}, {"link": math.nan}, {"order": "fifo"}, {"reserve": "never"}, {"fetch_limit": -1})
    for change in (*changes, {"alpha": 0.0}):
        with pytest.raises(ValueError):
            PrefetchRules(**({"link": 1.0} | change))
    with pytest.raises(ValueError, match="PrefetchRules"):
        EventLoop(LAYERS, EXPERTS, 4).feed(
            np.array([0]), np.array([0]), np.array([0, 0]), np.array([]), ranges=RANGES, **TASK
        )
