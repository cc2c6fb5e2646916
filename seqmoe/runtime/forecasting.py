"""From a step's routing to forecasts, retention scores and prefetch tasks: steps 3 to 5 of the offloading pipeline."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable
from seqmoe.predictor.base import Predictor
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec


class ForecastDriver:
    """Runs the predictor at its trigger layers and hands its forecast to the cache and to the prefetcher.

    A trigger after the routing of each of the predictor's layer ranges, by default the two halves, covers the layers of
    that range, so that the forecast's overlap window is a whole step (paper, sections 5 and 6.1).
    """

    def __init__(
        self, spec: SystemSpec, geometry: Geometry, predictor: Predictor, table: SlotTable, pipeline: OffloadPipeline
    ) -> None:
        if (predictor.layers, predictor.experts) != (geometry.layers, geometry.experts):
            raise ValueError(
                f"predictor for {predictor.layers} x {predictor.experts} experts, "
                f"but the model has {geometry.layers} x {geometry.experts}"
            )
        self._spec = spec
        self._geometry = geometry
        self._predictor = predictor
        self._table = table
        self._pipeline = pipeline
        self._covers = {last - 1: (first, last) for first, last in predictor.ranges}
        self._activation = np.zeros((geometry.layers, geometry.experts), dtype=np.float32)
        self._routing: dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]] = {}
        weights = spec.decay ** np.arange(spec.lookahead + 1, dtype=np.float32)
        self._row_weight = (weights / weights.sum()).reshape(-1, 1, 1)
        self._tasks_per_layer = min(geometry.top_k + spec.extra, geometry.experts)

    @property
    def trigger_layers(self) -> list[int]:
        """Layers after whose routing the predictor runs."""
        return list(self._covers)

    def begin_request(self) -> None:
        """Forget the last request's activations."""
        self._predictor.reset()

    def routed(self, step: int, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Note the routing of one layer ([tokens, k]; a batch of one token each), and act at a trigger layer."""
        self._routing[layer] = (experts, weights)
        if layer not in self._covers:
            return
        first, last = self._covers[layer]
        self._predictor.observe(self._activation_of(first, last), first, last)
        probability = self._predictor.forecast(first, last, self._spec.lookahead).probability
        # The next step's row belongs into the score: an expert needed soonest must not be evicted for lack of credit.
        self._table.score[first:last] = (probability * self._row_weight).sum(0)
        if self._spec.prefetch != "none":
            self._prefetch(step, first, probability[0])

    def _activation_of(self, first: int, last: int) -> NDArray[np.float32]:
        """Activation of the layers noted since the last trigger; the others' rows are of no meaning."""
        self._activation[first:last] = 0
        experts = np.stack([self._routing[layer][0] for layer in range(first, last)])
        weights = np.stack([self._routing[layer][1] for layer in range(first, last)])
        rows = np.arange(first, last)[:, None]
        for request in range(experts.shape[1]):
            self._activation[rows, experts[:, request]] += weights[:, request] / experts.shape[1]
        return self._activation

    def _prefetch(self, step: int, first: int, chance: NDArray[np.float32]) -> None:
        count = self._tasks_per_layer
        likely = np.argpartition(chance, -count, axis=1)[:, -count:]
        layers = np.arange(first, first + len(chance))
        keys = (layers[:, None] * self._geometry.experts + likely).astype(np.int32).ravel()
        confidence = np.take_along_axis(chance, likely, axis=1).astype(np.float32).ravel()
        deadline = np.repeat((step + 1) * self._geometry.layers + layers, count).astype(np.int64)
        self._pipeline.prefetch(keys, confidence, deadline)
