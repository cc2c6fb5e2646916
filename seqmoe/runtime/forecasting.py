"""From a step's routing to forecasts, retention scores and prefetch tasks: steps 3 to 5 of the offloading pipeline."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.predictor.base import Predictor
from seqmoe.runtime.prompt import PromptEvent
from seqmoe.runtime.retention import Retention
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec

_LEAST = np.finfo(np.float32).tiny


class ForecastDriver:
    """Runs the predictor at its trigger layers and hands its forecast to the cache and to the prefetcher.

    A trigger after the routing of each of the predictor's layer ranges, by default the two halves, covers the layers of
    that range, so that the forecast's overlap window is a whole step (paper, sections 5 and 6.1). A prompt's tokens are
    all taken in after its last layer. Several requests are one to the predictor: it reads their mean.
    """

    def __init__(
        self,
        spec: SystemSpec,
        geometry: Geometry,
        predictor: Predictor,
        retention: Retention,
        pipeline: OffloadPipeline,
    ) -> None:
        if (predictor.layers, predictor.experts) != (geometry.layers, geometry.experts):
            raise ValueError(
                f"predictor for {predictor.layers} x {predictor.experts} experts, "
                f"but the model has {geometry.layers} x {geometry.experts}"
            )
        self._predictor = predictor
        self._retention = retention
        self._pipeline = pipeline
        self._experts = geometry.experts
        self._layers = geometry.layers
        self._lookahead = spec.lookahead
        self._tasks = 0 if spec.prefetch == "none" else min(geometry.top_k + spec.extra, geometry.experts)
        self._rows = np.arange(geometry.layers, dtype=np.int64)[:, None]
        self._covers = {last - 1: (first, last) for first, last in predictor.ranges}
        self._activation = np.zeros((geometry.layers, geometry.experts), dtype=np.float32)
        self._chosen = np.zeros((geometry.layers, 1, geometry.top_k), dtype=np.int64)
        self._weights = np.zeros(self._chosen.shape, dtype=np.float32)
        self._prompt: dict[int, NDArray[np.float32]] = {}
        self.predictor_ns = 0

    @property
    def trigger_layers(self) -> frozenset[int]:
        """The layers after whose routing something happens."""
        return frozenset(self._covers)

    def begin_request(self) -> None:
        """Forget the last request's activations."""
        self._predictor.reset()
        self._activation[:] = self._weights[:] = 0

    def routed(
        self, step: int, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32], next_position: int
    ) -> None:
        """Note the routing of one layer ([batch, k]), and act at a trigger layer.

        ``next_position`` is that of the next step's layer 0.
        """
        if len(experts) > self._chosen.shape[1]:
            self._widen(len(experts))
        self._chosen[layer, : len(experts)] = experts
        self._weights[layer, : len(experts)] = weights
        if layer not in self._covers:
            return
        first, last = self._covers[layer]
        self._read(first, last)
        began = time.perf_counter_ns()
        self._predictor.observe(self._activation, first, last)
        self.predictor_ns += time.perf_counter_ns() - began
        self._forecast(step, first, last, next_position)

    def prompt_routed(self, step: int, layer: int, event: PromptEvent, next_position: int) -> None:
        """Note the routing of one layer of the prompts; after the last one, forecast the first decode step."""
        self._prompt[layer] = event.activation(self._experts)
        if layer + 1 < self._layers:
            return
        shape = (event.steps, self._experts)
        nothing = np.zeros(shape, dtype=np.float32)
        activation = np.stack([self._prompt.pop(each, nothing) for each in range(self._layers)], axis=1)
        self._prompt.clear()
        began = time.perf_counter_ns()
        take_in_prompt(self._predictor, activation)
        self.predictor_ns += time.perf_counter_ns() - began
        for first, last in self._covers.values():
            self._forecast(step, first, last, next_position)

    def _widen(self, batch: int) -> None:
        more = ((0, 0), (0, batch - self._chosen.shape[1]), (0, 0))
        self._chosen, self._weights = np.pad(self._chosen, more), np.pad(self._weights, more)

    def _read(self, first: int, last: int) -> None:
        """Activation of the layers noted since the last trigger, mean over the batch; the others' are of no meaning."""
        chosen, weights = self._chosen[first:last], self._weights[first:last]
        rows = self._rows[: last - first]
        share = weights / np.maximum(weights.sum(-1, keepdims=True), _LEAST)
        activation = self._activation[first:last]
        activation[:] = 0
        activation[rows, chosen[:, 0]] = share[:, 0]
        for request in range(1, chosen.shape[1]):
            # The experts of one token are distinct.
            activation[rows, chosen[:, request]] += share[:, request]
        if chosen.shape[1] > 1:
            activation /= np.maximum(np.count_nonzero(share.any(-1), axis=1), 1)[:, None]
        weights[:] = 0

    def _forecast(self, step: int, first: int, last: int, next_position: int) -> None:
        began = time.perf_counter_ns()
        probability = self._predictor.forecast(first, last, self._lookahead).probability
        self.predictor_ns += time.perf_counter_ns() - began
        self._retention.forecast(step, first, last, probability)
        if self._tasks:
            self._prefetch(next_position, first, probability[0])

    def _prefetch(self, next_position: int, first: int, chance: NDArray[np.float32]) -> None:
        count = self._tasks
        likely = np.argpartition(chance, -count, axis=1)[:, -count:]
        rows = self._rows[: len(chance)]
        keys = ((rows + first) * self._experts + likely).astype(np.int32).ravel()
        confidence = chance[rows, likely].astype(np.float32).ravel()
        deadline = np.repeat(next_position + first + rows[:, 0], count)
        self._pipeline.prefetch(keys, confidence, deadline)


def take_in_prompt(predictor: Predictor, activation: NDArray[np.float32]) -> None:
    """Show a predictor the steps of a prompt, float32 [steps, layers, experts], at once where it can."""
    whole = getattr(predictor, "prefill", None)
    if whole is not None:
        whole(activation)
        return
    for step in activation:
        for first, last in predictor.ranges:
            predictor.observe(step, first, last)
