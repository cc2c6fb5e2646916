"""What runs: synthetic requests of a model with forecasts, or a user's traces, as one batch of the event loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seqmoe.simulate.foresight import Tasks, tasks_of
from seqmoe.simulate.policies import Foresight
from seqmoe.simulate.policies.history import decayed_frequency
from seqmoe.simulate.timeline.oracle import EXTRA, ROWS, Oracle, Recall, fit_oracle
from seqmoe.simulate.timeline.settings import PAPER, Settings
from seqmoe.spec.geometry import Geometry
from seqmoe.traces.synthesis.process import RoutingProcess
from seqmoe.traces.synthesis.requests import SyntheticRequests

# Prefill tokens warm the pool and are not counted; with more of both, no hit rate moved by half a point.
PROMPT, DECODE = 192, 128
# The last prefill tokens, from which on there are forecasts: enough for a pool to have been refilled by them.
FORECAST = PROMPT - 64
# Layers and tokens that an oracle is solved for on.
_FITTED_LAYERS, _FITTED_STEPS = 6, 160


@dataclass(frozen=True, eq=False)
class Workload:
    """A batch with its forecasts.

    ``active`` bool [steps, layers, experts] are the experts that each event needs, the union over the batch;
    ``counted`` bool [steps] the decode steps that count. ``foresight`` is None where nothing forecasts. ``size`` is how
    many requests run together, ``extra`` the prefetch tasks of each layer and request beyond top k.
    """

    geometry: Geometry
    active: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    foresight: Foresight | None
    size: int = 1
    extra: int = EXTRA

    @cached_property
    def tasks(self) -> Tasks | None:
        """What is prefetched, by the forecasts."""
        return None if self.foresight is None else self.tasks_by(self.foresight)

    def tasks_by(self, foresight: Foresight) -> Tasks:
        """Tasks of every layer, k + 3 for each request of the batch: each has a forecast of its own (paper, section 6).

        Of the mean forecast these are the likeliest; k + 3 in all would be fewer than a batch needs.
        """
        count = self.size * (self.geometry.top_k + self.extra)
        return tasks_of(foresight, count - EXTRA)

    def with_settings(self, settings: Settings) -> Workload:
        """The same requests and forecasts, used as ``settings`` say."""
        if self.foresight is None:
            return self
        rows = self.foresight.padded[:, : 1 + settings.horizon]
        foresight = Foresight(rows, settings.ranges(self.geometry.layers))
        return replace(self, foresight=foresight, extra=settings.extra)

    @cached_property
    def history(self) -> Foresight:
        """Forecasts that know only how often the running requests used each expert so far, the same for all rows."""
        frequency = decayed_frequency(self.active, 0.98)
        padded = np.zeros((len(frequency) + 1, 1, *frequency.shape[1:]), dtype=np.float32)
        padded[1:, 0] = frequency
        return Foresight(padded, ((0, self.geometry.layers),))

    @property
    def distinct(self) -> float:
        """Distinct experts that an event of the counted steps needs, mean."""
        counted = self.active[self.counted]
        return float(counted.sum() / (counted.shape[0] * counted.shape[1]))


def synthetic_workload(
    geometry: Geometry, process: RoutingProcess, batch: int, recall: Recall | None, seed: int = 0
) -> Workload:
    """``batch`` synthetic requests; with a ``recall``, what a predictor of that recall would forecast for each."""
    requests = SyntheticRequests(geometry, process, batch, PROMPT, DECODE, seed)
    oracle = None if recall is None else _oracle(geometry, process, recall, seed)
    steps = PROMPT + DECODE
    padded = None if oracle is None else np.zeros((steps + 1, ROWS, geometry.layers, geometry.experts), np.float32)
    traces = []
    for index in range(batch):
        latents = requests.latents(index)
        traces.append(requests.request(index, latents))
        if oracle is not None and padded is not None:
            padded[1:] += oracle.forecast(latents, np.random.default_rng([seed, 2, index]), FORECAST) / np.float32(
                batch
            )
    active = np.zeros((steps, geometry.layers, geometry.experts), dtype=bool)
    for trace in traces:
        np.put_along_axis(active, trace.experts.astype(np.int64), True, axis=-1)
    counted = np.arange(steps) >= PROMPT
    return Workload(
        geometry, active, counted, None if padded is None else Foresight(padded, PAPER.ranges(geometry.layers)), batch
    )


def _oracle(geometry: Geometry, process: RoutingProcess, recall: Recall, seed: int) -> Oracle:
    few = Geometry(min(geometry.layers, _FITTED_LAYERS), geometry.experts, geometry.top_k)
    sample = SyntheticRequests(few, process, 1, 0, _FITTED_STEPS, seed + 1)
    return fit_oracle(process, sample.latents(0), geometry.top_k, recall, np.random.default_rng([seed, 3]))
