"""What the cheap predictors keep of a request: who was active last, and how often so far; a step without data is none.

The arrays are float32 [steps, layers, experts] unless said otherwise, the results of step t count step t itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from seqmoe.spec.trace import MISSING, RequestTrace

Floats = NDArray[np.float32]


def active_of(activation: Floats) -> Floats:
    """1 for each active expert, 0 for the others."""
    return (activation > 0).astype(np.float32)


def present_of(values: Floats) -> NDArray[np.bool_]:
    """Boolean [steps, layers]: which layers a step has."""
    present: NDArray[np.bool_] = np.any(values, axis=-1)
    return present


def active_in(request: RequestTrace, experts: int) -> Floats:
    """1 for each expert that a trace names, 0 for the others."""
    steps, layers, _ = request.experts.shape
    active = np.zeros((steps, layers, experts), dtype=np.float32)
    step, layer, place = np.nonzero(request.experts != MISSING)
    active[step, layer, request.experts[step, layer, place]] = 1
    return active


def latest(values: Floats, before: Floats) -> Floats:
    """``values``, where a step lacks a layer those of the last step that had it; ``before`` [layers, experts] at first.

    What a step lacks is all zero.
    """
    present = present_of(values)
    if present.all():
        return values
    step = np.where(present, np.arange(1, len(values) + 1)[:, None], 0)
    last = np.maximum.accumulate(step, axis=0)
    return np.concatenate([before[None], values])[last, np.arange(values.shape[1])]


def running_average(active: Floats, momentum: float, before: Floats) -> Floats:
    """Exponential average: ``average = momentum * average + (1 - momentum) * active`` from ``before``."""
    result = np.empty_like(active)
    present = present_of(active)
    for layer in range(active.shape[1]):
        start = before[layer][None]
        seen = active[present[:, layer], layer]
        averages = start
        if len(seen):
            filtered, _ = lfilter([1 - momentum], [1, -momentum], seen, axis=0, zi=momentum * start)
            averages = np.concatenate([start, filtered.astype(np.float32)])
        result[:, layer] = averages[np.cumsum(present[:, layer])]
    return result


def running_frequency(active: Floats) -> Floats:
    """Share of the steps so far in which the expert was active; zero before the first."""
    seen = np.maximum(np.cumsum(present_of(active), axis=0), 1)[..., None]
    return (np.cumsum(active, axis=0) / seen).astype(np.float32)
