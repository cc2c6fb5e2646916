"""Predictors that need no training: they learn from the request that they forecast, and forget it with the request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import Predictor, SequenceContext, halves, step_by_step
from seqmoe.predictor.history import active_of
from seqmoe.predictor.previous import Previous
from seqmoe.spec.forecast import Forecast

# How much a request's first steps are believed: an expert's row of the statistics counts as this many steps of what is
# popular, and what is popular as this many steps in which all experts are alike.
_TRANSITION_PRIOR = 2.0
_POPULARITY_PRIOR = 4.0
# The share of a running average of the request's activations in every forecast, and the weight of its past.
_RECENT, _MOMENTUM = 0.5, 0.9


class OnlineFirstOrder:
    """First-order conditional statistics (see `seqmoe.predictor.first_order`), counted while the request runs."""

    def __init__(self, layers: int, experts: int, top_k: int) -> None:
        self.layers, self.experts, self.top_k = layers, experts, top_k
        self.ranges = halves(layers)
        self._together = np.empty((layers, experts, experts), dtype=np.float32)
        self._seen = np.empty((layers, experts), dtype=np.float32)
        self._popular = np.empty((layers, experts), dtype=np.float32)
        self._steps = np.empty((layers, 1), dtype=np.float32)
        self._last = np.empty((layers, experts), dtype=np.float32)
        self._average = np.empty((layers, experts), dtype=np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget the request, and with it everything."""
        self._together[:] = self._seen[:] = self._popular[:] = self._steps[:] = self._last[:] = 0
        self._average[:] = self.top_k / self.experts

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive); a layer may lack."""
        active = active_of(activation[first_layer:last_layer])
        present = np.flatnonzero(active.any(-1)) + first_layer
        active = active[present - first_layer]
        layer, before = np.nonzero(self._last[present])
        self._together[present[layer], before] += active[layer]
        self._seen[present] += self._last[present]
        self._popular[present] += active
        self._steps[present] += 1
        self._last[present] = active
        self._average[present] += (1 - _MOMENTUM) * (active - self._average[present])

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more.

        The chain is rolled out on shares, without its matrix ever being made: only the counts are kept.
        """
        rows = slice(first_layer, last_layer)
        uniform = self.top_k / self.experts
        popular = (self._popular[rows] + _POPULARITY_PRIOR * uniform) / (self._steps[rows] + _POPULARITY_PRIOR)
        weight = 1 / (self._seen[rows] + _TRANSITION_PRIOR)
        active = self._last[rows].sum(-1, keepdims=True)
        share = np.where(active > 0, self._last[rows] / np.maximum(active, 1), np.float32(1 / self.experts))
        probability = np.empty((lookahead + 1, *popular.shape), dtype=np.float32)
        for step in probability:
            weighted = share * weight
            chance = np.matmul(weighted[:, None], self._together[rows])[:, 0]
            chance += _TRANSITION_PRIOR * weighted.sum(-1, keepdims=True) * popular
            step[:] = chance
            share = chance / self.top_k
        probability *= 1 - _RECENT
        probability += _RECENT * self._average[rows]
        return Forecast(np.minimum(probability, 1, out=probability), first_layer)

    def forecast_sequence(
        self,
        activation: NDArray[np.float32],
        lookahead: int,
        stride: int = 1,
        context: SequenceContext | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """All forecasts of one request, step by step; see `seqmoe.predictor.base.Predictor`."""
        return step_by_step(self, activation, lookahead, stride)

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """A ``ValueError``: what it knows belongs to one request."""
        raise ValueError(f"{path}: a predictor that learns from its request has nothing to keep")


ONLINE: dict[str, Callable[[int, int, int], Predictor]] = {
    "online_first_order": OnlineFirstOrder,
    "previous": Previous,
}
