"""Retention by expected use: forecasts up to their horizon, and how often the request used the expert beyond it.

The online twin of `seqmoe.simulate.policies.forecast.forecast_tail` and `seqmoe.simulate.policies.learned`. What a
forecast says is summed up once, at its trigger; after a layer only what its own event has changed is left to add.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.runtime.retention import Offline, Retention, faded_uses
from seqmoe.simulate.policies.base import Floats
from seqmoe.simulate.policies.forecast import HORIZON, TAIL_DISCOUNT
from seqmoe.simulate.policies.history import DECAY
from seqmoe.simulate.policies.learned import DECAYS, DISCOUNT, DISCOUNTS

_LEAST = 1e-9
_MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class _Weights:
    """Shares of the frequencies at ``decays``, of the next use at ``discounts``, of no use at all, and a constant.

    ``steps`` are the rows of a forecast that count, None for all; values fade by ``discount`` a step.
    """

    decays: tuple[float, ...]
    frequency: tuple[float, ...]
    discounts: tuple[float, ...]
    next_use: tuple[float, ...]
    none: float
    constant: float
    steps: int | None
    discount: float


class ExpectedUse(Retention):
    """The logarithm of a weighted sum of forecasts and frequencies, moved so that scores stay valid as time passes."""

    def __init__(self, score: Floats, offline: Offline, weights: _Weights) -> None:
        super().__init__(score, offline)
        self._steps, self._fade = weights.steps, float(np.log(weights.discount))
        self._decays = np.array(weights.decays)[:, None]
        self._kept = weights.decays.index(DECAY)
        self._discounts = np.array(weights.discounts)[:, None]
        self._frequency, self._next_use = np.array(weights.frequency), np.array(weights.next_use)
        self._none, self._constant = weights.none, weights.constant
        self._uses = np.zeros((len(weights.decays), *score.shape))
        # Of the forecast, for when the layer's next event is over: what it adds, and the chance of no use within it.
        self._later = np.empty(score.shape)
        self._later_unused = np.empty(score.shape)
        # Weights of a next use in so many steps: of each discount, and of all.
        self._ahead_by = self._next_use * self._discounts[:, 0] ** np.arange(_MOST_ROWS + 1)[:, None]
        self._ahead = self._ahead_by.sum(1)
        self._tail = self._ahead_by[HORIZON]
        self._begin = self._origin = 0
        self._forget()

    def begin_request(self, step: int) -> None:
        """Frequencies and forecasts are of one batch; the scores fade on, told as of the new beginning."""
        self.resized(step)
        self._begin = step
        self._forget()

    def resized(self, step: int) -> None:
        """The scores are told as of now, lest they grow without end."""
        self.score -= (step - self._origin) * self._fade
        self._origin = step

    def used(self, layer: int, step: int, experts: NDArray[np.int32]) -> None:
        """One more step of history; what was forecast as this step is past."""
        uses = self._uses[:, layer]
        uses *= self._decays
        uses[:, experts] += 1 - self._decays
        self._after_event(layer, step)

    def prompt(self, layer: int, step: int, active: NDArray[np.bool_]) -> None:
        """As many steps of history as the prompt has tokens."""
        for uses, decay in zip(self._uses[:, layer], self._decays[:, 0], strict=True):
            uses *= decay ** len(active)
            uses += (1 - decay) * faded_uses(active, decay)
        self._after_event(layer, step)

    def forecast(self, step: int, first: int, last: int, probability: Floats) -> None:
        """All layers' events of ``step`` are over: every row lies ahead. Without row 0, what is left after the next."""
        value, unused, tail = self._of(probability[: self._steps])
        uses = self._uses[:, first:last].reshape(len(self._uses), -1)
        beyond, frequency = self._history(uses, tail, step)
        total = value.ravel() + unused.ravel() * beyond + frequency
        when = (1 + step - self._origin + np.arange(first, last) / self.layers) * self._fade
        logarithm = np.log(np.maximum(total, _LEAST)).reshape(-1, self.experts)
        self.score[first:last] = logarithm + when[:, None]
        rows = probability[1:][: self._steps]
        self._later[first:last], self._later_unused[first:last], self._tail = self._of(rows)

    def _forget(self) -> None:
        self._uses[:] = 0
        self._later[:] = self._none + self._constant
        self._later_unused[:] = 1

    def _after_event(self, layer: int, step: int) -> None:
        beyond, frequency = self._history(self._uses[:, layer], self._tail, step)
        total = self._later[layer] + self._later_unused[layer] * beyond + frequency
        when = (1 + step - self._origin + layer / self.layers) * self._fade
        self.score[layer] = np.log(np.maximum(total, _LEAST)) + when

    def _history(
        self, uses: NDArray[np.float64], tail: NDArray[np.float64], step: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | float]:
        """What history says, [n]: the next use beyond the forecast, and the frequencies; ``uses`` [decays, n]."""
        frequency = uses / (1 - self._decays ** (step - self._begin + 1))
        chance = np.minimum(np.maximum(frequency[self._kept], 1e-3), 0.999)
        beyond = tail @ (chance / (1 - self._discounts * (1 - chance)))
        return beyond, self._frequency @ frequency if self._frequency.any() else 0.0

    def _of(self, rows: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Of a forecast [n, layers, experts]: its own part of the value, the chance of no use, the tail's weights."""
        shape = rows.shape[1:]
        if not len(rows):  # the predictor looks no further
            return np.full(shape, self._none + self._constant), np.ones(shape), self._ahead_by[0]
        chance = rows.reshape(len(rows), -1).astype(np.float64)
        unused = np.cumprod(1 - chance, axis=0)
        chance[1:] *= unused[:-1]
        value = self._ahead[: len(rows)] @ chance + self._none * unused[-1] + self._constant
        return value.reshape(shape), unused[-1].reshape(shape), self._ahead_by[len(rows)]


class ForecastTail(ExpectedUse):
    """Expected discounted next use: forecasts, and the decayed frequency as the chance beyond them."""

    def __init__(self, score: Floats, offline: Offline) -> None:
        weights = _Weights((DECAY,), (0.0,), (TAIL_DISCOUNT,), (1.0,), 0.0, 0.0, None, TAIL_DISCOUNT)
        super().__init__(score, offline, weights)


class Learned(ExpectedUse):
    """Forecasts at several discounts and frequencies at several decays, weighted as fitted to other traces."""

    def __init__(self, score: Floats, offline: Offline) -> None:
        if offline.weights is None:
            raise ValueError("this policy needs weights that were fitted to other traces")
        fitted = [float(weight) for weight in offline.weights]
        split = len(DECAYS)
        *next_use, none, constant = fitted[split:]
        super().__init__(
            score,
            offline,
            _Weights(
                DECAYS,
                tuple(fitted[:split]),
                DISCOUNTS,
                tuple(next_use),
                none,
                constant,
                HORIZON,
                DISCOUNT,
            ),
        )
