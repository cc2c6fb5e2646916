"""The previous token's experts again: the cheapest forecast, and the one that an LRU cache makes without saying so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import SequenceContext, halves, positions
from seqmoe.predictor.container import Tensors, write_container
from seqmoe.predictor.history import active_of, latest, running_frequency
from seqmoe.spec.forecast import Forecast
from seqmoe.spec.trace import TraceSet

KIND = "previous"
# Orders what the previous token did not use without saying that it is likely.
_WHISPER = 1e-3


class Previous:
    """Probability 1 for the previous token's experts, next to 0 for the others: by how often the request used them."""

    def __init__(self, layers: int, experts: int, top_k: int) -> None:
        self.layers, self.experts, self.top_k = layers, experts, top_k
        self.ranges = halves(layers)
        self._last = np.empty((layers, experts), dtype=np.float32)
        self._uses = np.empty((layers, experts), dtype=np.float32)
        self._seen = np.empty((layers, 1), dtype=np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget the request."""
        self._last[:] = self._uses[:] = self._seen[:] = 0

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive)."""
        rows = slice(first_layer, last_layer)
        active = active_of(activation[rows])
        present = active.any(-1, keepdims=True)
        np.copyto(self._last[rows], active, where=present)
        self._uses[rows] += active
        self._seen[rows] += present

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """The same for every step: nothing is known of how routing moves on."""
        rows = slice(first_layer, last_layer)
        frequency = self._uses[rows] / np.maximum(self._seen[rows], np.float32(1))
        chance = _ordered(self._last[rows], frequency)
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
        self.reset()
        active = active_of(activation)
        chance = _ordered(latest(active, self._last)[chosen], running_frequency(active)[chosen])
        shape = (len(chosen), lookahead + 1, self.layers, self.experts)
        return chosen, np.broadcast_to(chance[:, None], shape)

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write a predictor file; there is nothing in it but the geometry."""
        geometry = {"layers": self.layers, "experts": self.experts, "top_k": self.top_k}
        write_container(path, KIND, {}, {"geometry": geometry, "ranges": self.ranges, "training": training or {}})


def _ordered(last: NDArray[np.float32], frequency: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.where(last > 0, 1, _WHISPER * frequency).astype(np.float32)


def restore(about: dict[str, Any], tensors: Tensors) -> Previous:
    """The predictor that a file describes."""
    geometry = about["geometry"]
    return Previous(geometry["layers"], geometry["experts"], geometry["top_k"])


def fit(traces: TraceSet) -> Previous:
    """Nothing is learnt but the geometry."""
    return Previous(traces.layers, traces.experts, traces.top_k)
