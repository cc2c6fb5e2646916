"""A policy whose shares of forecast, frequency and recency are fitted to other traces of the same model.

Linear regression of the discounted next use, g ** steps to it with g = `DISCOUNT`, on what is known of each expert: ten
weights from some hundred thousand examples, the same for all layers and experts. It takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.policies.base import Floats, Routing, Scores
from seqmoe.simulate.policies.forecast import HORIZON, next_use_value, timeless
from seqmoe.simulate.policies.history import DECAY, decayed_frequency
from seqmoe.simulate.policies.oracle import next_use

# Fitted with 0.5, 0.7, 0.8, 0.9 and 0.95 (GPT-OSS-20B), this one is within 0.2 points of the best at every residency.
DISCOUNT = 0.8
DECAYS = (0.7, 0.9, 0.95, 0.98)
DISCOUNTS = (0.5, 0.8, 0.95, 0.99)
# What the weights are of, in their order. The single rows of the forecast and recency added less than 0.1 points.
FEATURES = (
    *(f"frequency, decay {decay:g}" for decay in DECAYS),
    *(f"next use, discount {discount:g}" for discount in DISCOUNTS),
    "no use within the horizon",
    "constant",
)
# Steps of a request that are no examples: its beginning, where frequencies mean little, and its end, where the next use
# is not known.
_BEGINNING, _END = 16, 30
_SHRINKAGE = 0.1


def learned(routing: Routing) -> Scores:
    """Discounted next use, from forecasts of it at several discounts and frequencies at several decays, as fitted."""
    if routing.weights is None:
        raise ValueError("this policy needs weights that were fitted to other traces")
    weights, foresight = routing.weights, routing.forecasts()

    def value(rows: Floats) -> Floats:
        total = np.zeros(routing.active.shape, dtype=np.float32)
        for weight, feature in zip(weights, _features(routing, rows), strict=True):
            total += weight * feature
        return total

    return timeless(routing, value(foresight.before[:, 1:]), value(foresight.probability), DISCOUNT)


def fit(routings: Iterable[Routing], examples: int = 8000, seed: int = 0) -> Floats:
    """Weights float32 [len(`FEATURES`)] by least squares, on ``examples`` drawn from each of ``routings``.

    Every routing needs forecasts. Half of the examples are as after the expert's layer, half as at the forecast.
    """
    rng = np.random.default_rng(seed)
    moments, products = np.zeros((len(FEATURES), len(FEATURES))), np.zeros(len(FEATURES))
    for routing in routings:
        foresight, target = routing.forecasts(), _target(routing)
        first = min(_BEGINNING, len(target) - 1)
        steps, layers, experts = max(1, len(target) - first - _END), *target.shape[1:]
        for rows in (foresight.before[:, 1:], foresight.probability):
            chosen = (
                first + rng.integers(0, steps, examples // 2),
                rng.integers(0, layers, examples // 2),
                rng.integers(0, experts, examples // 2),
            )
            x = np.stack([feature[chosen] for feature in _features(routing, rows)], axis=1).astype(np.float64)
            moments += x.T @ x
            products += x.T @ target[chosen]
    # The features are nearly dependent: a little shrinkage keeps the weights small.
    weights: Floats = np.linalg.solve(moments + _SHRINKAGE * np.eye(len(FEATURES)), products).astype(np.float32)
    return weights


def _features(routing: Routing, rows: Floats) -> Iterator[Floats]:
    """Arrays [steps, layers, experts] in the order of `FEATURES`; ``rows`` begin with the layer's next event."""
    near = rows[:, :HORIZON]
    for decay in DECAYS:
        yield decayed_frequency(routing.active, decay)
    chance = np.clip(decayed_frequency(routing.active, DECAY), 1e-3, 0.999)
    for discount in DISCOUNTS:
        yield next_use_value(near, chance, discount)
    yield np.prod(1 - near, axis=1)
    yield np.ones_like(chance)


def _target(routing: Routing) -> NDArray[np.float64]:
    """``DISCOUNT`` ** steps from a layer's next event to that which needs the expert; 0 where none does."""
    coming = next_use(routing)
    steps = (coming - routing.positions[..., None]) / routing.active.shape[1] - 1
    return np.where(coming < routing.positions.size, DISCOUNT**steps, 0.0)
