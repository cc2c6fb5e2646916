"""The next layer's router applied early: on the state that the layer before it received, within the same step.

It looks less far than all others, one layer instead of one step, so that a prefetcher has no more than a layer's time
to act on it. What the routers choose early depends on the model's state, so it is collected with the traces, and this
predictor is of use offline only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import SequenceContext, halves, positions
from seqmoe.predictor.container import Tensors, write_container
from seqmoe.predictor.history import active_in
from seqmoe.predictor.popularity import frequency_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.forecast import Forecast
from seqmoe.spec.trace import MISSING, RequestTrace, TraceSet

KIND = "early_router"
_TILT = 1e-6
OFFLINE = "the early router needs the model's hidden state: it is for evaluations (`seqmoe predictor eval`) only"


class EarlyRouter:
    """``precision`` float32 [layers, m]: how often the early router's r-th choice was active in the training traces.

    A forecast gives each of the m choices its precision; ``frequency`` [layers, experts] (popularity) speaks for what
    no early router chose, above all layer 0. Of a rollout there is the next step only.
    """

    def __init__(self, precision: NDArray[np.float32], frequency: NDArray[np.float32], top_k: int) -> None:
        if precision.ndim != 2 or frequency.shape[:1] != precision.shape[:1]:
            raise ValueError(f"precision {precision.shape} does not fit frequency {frequency.shape}")
        self.layers, self.experts = frequency.shape
        self.top_k = top_k
        self.ranges = halves(self.layers)
        self._precision = precision.astype(np.float32)
        # The order is the router's: precision that is not falling, by chance, must not change it.
        falling = np.maximum.accumulate(self._precision[:, ::-1], axis=1)[:, ::-1]
        places = precision.shape[1]
        self._confidence = falling * (1 - _TILT * places) + _TILT * np.arange(places, 0, -1, dtype=np.float32)
        self._frequency = frequency.astype(np.float32)

    def reset(self) -> None:
        """There is nothing to forget."""

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> NoReturn:
        """Always an `InputError`: activations are not what it reads."""
        raise InputError(OFFLINE)

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Always an `InputError`, as `observe`."""
        raise InputError(OFFLINE)

    def forecast_sequence(
        self,
        activation: NDArray[np.float32],
        lookahead: int,
        stride: int = 1,
        context: SequenceContext | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Forecasts of the next step alone, float32 [n, 1, layers, experts], from that step's own early choices."""
        chosen = positions(len(activation), stride)
        early = _required(None if context is None else context.early, "the trace")
        if early.shape[2] != self._precision.shape[1]:
            width = self._precision.shape[1]
            raise InputError(f"early: {early.shape[2]} choices per layer, but the predictor was fitted on {width}")
        probability = np.repeat(self._frequency[None], len(chosen), axis=0)
        # Between steps t and t + 1, the choices of step t + 1; after the last step there are none.
        following = np.append(early[1:], np.full_like(early[:1], MISSING), axis=0)[chosen]
        step, layer, place = np.nonzero(following != MISSING)
        probability[step, layer] = 0
        probability[step, layer, following[step, layer, place]] = self._confidence[layer, place]
        return chosen, probability[:, None]

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write the statistics as one predictor file, whole or not at all."""
        geometry = {"layers": self.layers, "experts": self.experts, "top_k": self.top_k}
        about = {"geometry": geometry, "ranges": self.ranges, "training": training or {}}
        write_container(path, KIND, {"precision": self._precision, "frequency": self._frequency}, about)


def restore(about: dict[str, Any], tensors: Tensors) -> EarlyRouter:
    """The predictor that a file describes."""
    return EarlyRouter(tensors["precision"], tensors["frequency"], about["geometry"]["top_k"])


def fit(traces: TraceSet) -> EarlyRouter:
    """Count how often each place of the early router's order was right; `InputError` where the traces have none."""
    right: NDArray[np.float64] = np.zeros((traces.layers, 0))
    counted: NDArray[np.float64] = np.zeros((traces.layers, 0))
    for index, request in enumerate(traces.requests):
        early = _required(request.early, f"{traces.source or traces.model}, request {index}")
        if not counted.size:
            right, counted = np.zeros((traces.layers, early.shape[2])), np.zeros((traces.layers, early.shape[2]))
        if early.shape[2] != right.shape[1]:
            raise InputError(f"request {index}: {early.shape[2]} early choices per layer; {right.shape[1]} before")
        present = _present(early, request)
        active = active_in(request, traces.experts)
        hit = np.take_along_axis(active, np.where(present, early, 0).astype(np.int64), axis=-1)
        right += (hit * present).sum(0)
        counted += present.sum(0)
    if not counted.size:
        raise InputError(f"{traces.source or traces.model}: there is no request to fit the early router on")
    precision = right / np.maximum(counted, 1)
    return EarlyRouter(precision.astype(np.float32), frequency_of(traces), traces.top_k)


def _present(early: NDArray[np.int16], request: RequestTrace) -> NDArray[np.bool_]:
    """Where there is an early choice, and routing to compare it with."""
    there: NDArray[np.bool_] = (early != MISSING) & np.all(request.experts != MISSING, axis=-1)[..., None]
    return there


def _required(early: NDArray[np.int16] | None, where: str) -> NDArray[np.int16]:
    if early is None:
        raise InputError(
            f"{where}: no early routers' choices, which the kind {KIND!r} needs; they are collected with the traces "
            "from the model itself, by `seqmoe trace collect`"
        )
    return early
