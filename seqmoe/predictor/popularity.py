"""Per-layer popularity: how often each expert was used in the training traces, whatever the request does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import SequenceContext, halves, positions
from seqmoe.predictor.container import Tensors, write_container
from seqmoe.predictor.history import active_in, present_of
from seqmoe.spec.forecast import Forecast
from seqmoe.spec.trace import TraceSet

KIND = "popularity"


class Popularity:
    """``frequency`` float32 [layers, experts]: share of the tokens that used the expert; a layer sums to top_k."""

    def __init__(self, frequency: NDArray[np.float32], top_k: int) -> None:
        if frequency.ndim != 2:
            raise ValueError(f"frequency: expected [layers, experts], got {frequency.shape}")
        self.layers, self.experts = frequency.shape
        self.top_k = top_k
        self.ranges = halves(self.layers)
        self._frequency = frequency.astype(np.float32)

    def reset(self) -> None:
        """There is nothing to forget."""

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """The request changes nothing."""

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """The same for every step."""
        chance = self._frequency[first_layer:last_layer]
        return Forecast(np.broadcast_to(chance, (lookahead + 1, *chance.shape)), first_layer)

    def forecast_sequence(
        self,
        activation: NDArray[np.float32],
        lookahead: int,
        stride: int = 1,
        context: SequenceContext | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """All forecasts of one request, see `seqmoe.predictor.base.Predictor`."""
        chosen = positions(len(activation), stride)
        return chosen, np.broadcast_to(self._frequency, (len(chosen), lookahead + 1, *self._frequency.shape))

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write the frequencies as one predictor file, whole or not at all."""
        geometry = {"layers": self.layers, "experts": self.experts, "top_k": self.top_k}
        about = {"geometry": geometry, "ranges": self.ranges, "training": training or {}}
        write_container(path, KIND, {"frequency": self._frequency}, about)


def frequency_of(traces: TraceSet) -> NDArray[np.float32]:
    """Share of the tokens that used each expert, float32 [layers, experts]; even where a layer is never there."""
    uses = np.zeros((traces.layers, traces.experts))
    tokens = np.zeros((traces.layers, 1))
    for request in traces.requests:
        active = active_in(request, traces.experts)
        uses += active.sum(0)
        tokens += present_of(active).sum(0)[:, None]
    even = traces.top_k / traces.experts
    return np.where(tokens > 0, uses / np.maximum(tokens, 1), even).astype(np.float32)


def restore(about: dict[str, Any], tensors: Tensors) -> Popularity:
    """The predictor that a file describes."""
    return Popularity(tensors["frequency"], about["geometry"]["top_k"])


def fit(traces: TraceSet) -> Popularity:
    """Count the training traces."""
    return Popularity(frequency_of(traces), traces.top_k)
