"""What every predictor can do: see a prompt, see a step, and forecast the next steps of some layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.forecast import Forecast
from seqmoe.spec.trace import RequestTrace

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceContext:
    """What a few predictors need beside the activations: ``token_ids`` int32 [steps], and the early routers' choice.

    ``early`` int16 [steps, layers, m] as in `RequestTrace`. Both are None where the trace has none.
    """

    token_ids: NDArray[np.int32] | None = None
    early: NDArray[np.int16] | None = None

    @staticmethod
    def of(request: RequestTrace) -> SequenceContext:
        """The context that a trace carries."""
        return SequenceContext(request.token_ids, request.early)


class Predictor(Protocol):
    """A forecaster of expert activations for one running batch.

    ``activation`` is float32 [layers, experts]: `seqmoe.predictor.psi.activations` of a step, mean over the batch; a
    layer of zeros is one that the source lacks. ``ranges`` are the layer ranges that it was made for, ascending and
    without gaps: one trigger after each range's last layer.
    """

    layers: int
    experts: int
    ranges: Ranges

    def reset(self) -> None:
        """Forget the request."""
        ...

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive)."""
        ...

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more."""
        ...

    def forecast_sequence(
        self,
        activation: NDArray[np.float32],
        lookahead: int,
        stride: int = 1,
        context: SequenceContext | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """All forecasts of one request at once, from a fresh state; the running state is lost.

        ``activation`` float32 [steps, layers, experts]. Returns the positions t = 0, stride, 2 stride, ..., int64 [n],
        and probabilities float32 [n, lookahead + 1, layers, experts], perhaps read-only: row [i, j] forecasts step
        t_i + 1 + j, seen from step t_i, of which each range knows its own layers. A predictor that cannot look as far
        returns fewer rows.
        """
        ...

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write the predictor, and the record of its training, as one file."""
        ...


def halves(layers: int) -> Ranges:
    """The paper's two predictors: the lower and the upper half of the layers; a single layer has one."""
    half = layers // 2
    return ((0, half), (half, layers)) if half else ((0, layers),)


def positions(steps: int, stride: int) -> NDArray[np.int64]:
    """The steps after which `Predictor.forecast_sequence` forecasts."""
    if stride < 1:
        raise ValueError(f"stride = {stride}: must be at least 1")
    return np.arange(0, steps, stride, dtype=np.int64)


def step_by_step(
    predictor: Predictor, activation: NDArray[np.float32], lookahead: int, stride: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """`Predictor.forecast_sequence` through the running protocol: what the faster ways are held to."""
    chosen = positions(len(activation), stride)
    probability = np.zeros((len(chosen), lookahead + 1, *activation.shape[1:]), dtype=np.float32)
    predictor.reset()
    for step, row in enumerate(activation):
        for first, last in predictor.ranges:
            predictor.observe(row, first, last)
            if step % stride == 0:
                probability[step // stride, :, first:last] = predictor.forecast(first, last, lookahead).probability
    return chosen, probability
