"""First-order conditional statistics: which experts follow which, layer by layer, from one token to the next.

The forecast of Patterns-MoE (paper, section 2.2), written as a Markov chain so that it can be rolled out, with a
running average of the request's own activations beside it.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.spec.forecast import Forecast
from seqmoe.spec.trace import MISSING, TraceSet

SCHEMA = 1
_SMOOTHING = 0.5


class FirstOrder:
    """``transition`` float32 [layers, experts, experts]: P(expert j active next | expert i active now).

    ``momentum`` is the weight of the past in the running average of the request's activations, ``recent`` that
    average's share in every forecast; 0 gives the plain conditional statistics.
    """

    def __init__(
        self, transition: NDArray[np.float32], top_k: int, recent: float = 0.0, momentum: float = 0.95
    ) -> None:
        if transition.ndim != 3 or transition.shape[1] != transition.shape[2]:
            raise ValueError(f"transition: expected [layers, experts, experts], got {transition.shape}")
        self.layers, self.experts = transition.shape[:2]
        self.top_k = top_k
        self.recent = recent
        self.momentum = momentum
        self._transition = np.ascontiguousarray(transition, dtype=np.float32)
        self._share = np.zeros((self.layers, self.experts), dtype=np.float32)
        self._average = np.full((self.layers, self.experts), top_k / self.experts, dtype=np.float32)
        self._rollout = np.empty((self.layers, self.experts, 0), dtype=np.float32)

    def reset(self) -> None:
        """Forget the request."""
        self._share[:] = 0
        self._average[:] = self.top_k / self.experts

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive)."""
        rows = slice(first_layer, last_layer)
        active = activation[rows] > 0
        self._share[rows] = active / np.maximum(active.sum(1, keepdims=True), 1)
        self._average[rows] *= self.momentum
        self._average[rows] += (1 - self.momentum) * active

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more."""
        rows = slice(first_layer, last_layer)
        if self._rollout.shape[2] != (lookahead + 1) * self.experts:
            self._rollout = self._powers(lookahead + 1)
        chance = np.matmul(self._share[rows, None], self._rollout[rows])
        probability = chance.reshape(-1, lookahead + 1, self.experts).transpose(1, 0, 2)
        if self.recent:
            probability *= 1 - self.recent
            probability += self.recent * self._average[rows]
        return Forecast(probability, first_layer)

    def _powers(self, steps: int) -> NDArray[np.float32]:
        """[layers, experts, steps * experts]: the transition's first powers side by side, one product per forecast.

        Every row of the transition sums to top_k; divided by it, an expert's chance becomes its share again.
        """
        power = self._transition
        powers = [power]
        for _ in range(steps - 1):
            power = np.matmul(power / self.top_k, self._transition)
            powers.append(power)
        return np.concatenate(powers, axis=2)

    def save(self, path: Path) -> None:
        """Write the statistics as compressed numpy arrays (float16), whole or not at all."""
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as stream:
            np.savez_compressed(
                stream,
                schema=SCHEMA,
                kind="first_order",
                transition=self._transition.astype(np.float16),
                top_k=self.top_k,
                recent=self.recent,
                momentum=self.momentum,
            )
        os.replace(partial, path)

    @staticmethod
    def load(path: Path) -> FirstOrder:
        """Read what `save` wrote; anything else is an `InputError` that names the file."""
        if not path.exists():
            raise InputError(f"{path}: no such predictor file; give one that `FirstOrder.save` wrote")
        if not zipfile.is_zipfile(path):  # numpy would take it for a pickle, and advise to load that
            raise InputError(f"{path}: not a first-order predictor: no archive of numpy arrays; is it truncated?")
        try:
            with np.load(path) as stored:
                if int(stored["schema"]) > SCHEMA:
                    raise InputError(f"{path}: predictor schema {int(stored['schema'])}; this version reads {SCHEMA}")
                return FirstOrder(
                    stored["transition"].astype(np.float32),
                    int(stored["top_k"]),
                    float(stored["recent"]),
                    float(stored["momentum"]),
                )
        except InputError:
            raise
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            reason = "it holds Python objects" if "allow_pickle" in str(error) else str(error)
            raise InputError(f"{path}: not a first-order predictor: {reason}") from None


def fit(traces: TraceSet, recent: float = 0.0, momentum: float = 0.9) -> FirstOrder:
    """Count transitions between consecutive tokens of each request; rows without data fall back to popularity."""
    layers, experts = traces.layers, traces.experts
    together = np.zeros((layers, experts, experts), dtype=np.float64)
    seen = np.zeros((layers, experts), dtype=np.float64)
    popular = np.zeros((layers, experts), dtype=np.float64)
    for request in traces.requests:
        active = np.zeros((len(request.experts), layers, experts), dtype=np.float32)
        steps, rows, _ = np.nonzero(request.experts != MISSING)
        active[steps, rows, request.experts[request.experts != MISSING]] = 1
        complete: NDArray[np.bool_] = np.any(active, axis=-1)
        pairs = (complete[:-1] & complete[1:])[..., None]
        before, after = active[:-1] * pairs, active[1:]
        together += np.einsum("tli,tlj->lij", before, after, optimize=True)
        seen += before.sum(0)
        popular += active.sum(0)
    tokens = np.maximum(popular.sum(-1, keepdims=True), 1) / traces.top_k
    prior = popular / tokens
    transition = (together + _SMOOTHING * prior[:, None]) / (seen[..., None] + _SMOOTHING)
    return FirstOrder(transition.astype(np.float32), traces.top_k, recent, momentum)
