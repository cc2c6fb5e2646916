"""The paper's CacheScore while a model runs: as printed, and with the next step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.runtime.retention import Offline, Retention
from seqmoe.simulate.policies.base import Floats
from seqmoe.simulate.policies.forecast import HORIZON, LAMBDA


class CacheScore(Retention):
    """CacheScore as printed (paper, section 7.1): later rows count half as much, the next step's does not count."""

    def begin_request(self, step: int) -> None:
        """The last request's forecasts say nothing of this one."""
        self.score[:] = 0

    def forecast(self, step: int, first: int, last: int, probability: Floats) -> None:
        """Rows 1 to 8."""
        self.score[first:last] = fading_mean(probability[1:])


class CacheScoreNext(Retention):
    """CacheScore that counts the next step until the expert's layer has passed; then the rows after it move up."""

    def __init__(self, score: Floats, offline: Offline) -> None:
        super().__init__(score, offline)
        self._later = np.zeros_like(score)

    def begin_request(self, step: int) -> None:
        """The last request's forecasts say nothing of this one."""
        self.score[:] = self._later[:] = 0

    def used(self, layer: int, step: int, experts: NDArray[np.int32]) -> None:
        """What was forecast as this step is past."""
        self.score[layer] = self._later[layer]

    def forecast(self, step: int, first: int, last: int, probability: Floats) -> None:
        """Rows 0 to 7 count now, rows 1 to 8 once the layer's event is over."""
        self.score[first:last] = fading_mean(probability)
        self._later[first:last] = fading_mean(probability[1:])


_WEIGHTS = (LAMBDA ** np.arange(HORIZON)).astype(np.float32)


def fading_mean(rows: Floats) -> Floats:
    """Mean over the first `HORIZON` of the rows [n, layers, experts], weighted by `LAMBDA` ** row; of none, 0."""
    rows = rows[:HORIZON]
    if not len(rows):  # the predictor looks no further
        return np.zeros(rows.shape[1:], dtype=np.float32)
    weights = _WEIGHTS[: len(rows)] / _WEIGHTS[: len(rows)].sum()
    # A product of matrices takes a fifth of np.tensordot's time at this size.
    return (weights @ rows.reshape(len(rows), -1)).reshape(rows.shape[1:])
