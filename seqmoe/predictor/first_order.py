"""First-order conditional statistics: which experts follow which, layer by layer, from one token to the next.

The forecast of Patterns-MoE (paper, section 2.2), written as a Markov chain so that it can be rolled out, with, where
asked for, a running average of the request's own activations beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import SequenceContext, halves, positions
from seqmoe.predictor.container import Tensors, read_container, write_container
from seqmoe.predictor.history import active_in, active_of, latest, present_of, running_average
from seqmoe.spec.errors import InputError
from seqmoe.spec.forecast import Forecast
from seqmoe.spec.trace import TraceSet

KIND = "first_order"
_SMOOTHING = 0.5


class FirstOrder:
    """``transition`` float32 [layers, experts, experts]: P(expert j active next | expert i active now).

    ``momentum`` is the weight of the past in the running average of the request's activations, ``recent`` that
    average's share in every forecast; 0 gives the plain conditional statistics. A layer that a step lacks keeps what
    the last step told of it.
    """

    def __init__(
        self, transition: NDArray[np.float32], top_k: int, recent: float = 0.0, momentum: float = 0.95
    ) -> None:
        if transition.ndim != 3 or transition.shape[1] != transition.shape[2]:
            raise ValueError(f"transition: expected [layers, experts, experts], got {transition.shape}")
        self.layers, self.experts = transition.shape[:2]
        self.ranges = halves(self.layers)
        self.top_k = top_k
        self.recent = recent
        self.momentum = momentum
        self._transition = np.ascontiguousarray(transition, dtype=np.float32)
        self._share = np.empty((self.layers, self.experts), dtype=np.float32)
        self._average = np.empty((self.layers, self.experts), dtype=np.float32)
        self._rollout = np.empty((self.layers, self.experts, 0), dtype=np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget the request; before its first step, every expert is as likely as another."""
        self._share[:] = 1 / self.experts
        self._average[:] = self.top_k / self.experts

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive)."""
        rows = slice(first_layer, last_layer)
        active = activation[rows] > 0
        counts = active.sum(1, keepdims=True)
        present = counts > 0
        np.copyto(self._share[rows], active / np.maximum(counts, 1), where=present)
        np.copyto(
            self._average[rows], self.momentum * self._average[rows] + (1 - self.momentum) * active, where=present
        )

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more."""
        rows = slice(first_layer, last_layer)
        chance = np.matmul(self._share[rows, None], self._powers(lookahead + 1)[rows])
        probability = chance.reshape(-1, lookahead + 1, self.experts).transpose(1, 0, 2)
        if self.recent:
            probability *= 1 - self.recent
            probability += self.recent * self._average[rows]
        return Forecast(probability, first_layer)

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
        share = active / np.maximum(active.sum(-1, keepdims=True), 1)
        share = latest(share, self._share)[chosen].transpose(1, 0, 2)
        shape = (self.layers, len(chosen), lookahead + 1, self.experts)
        probability = np.matmul(share, self._powers(lookahead + 1)).reshape(shape).transpose(1, 2, 0, 3)
        if self.recent:
            probability *= 1 - self.recent
            probability += self.recent * running_average(active, self.momentum, self._average)[chosen, None]
        return chosen, probability

    def _powers(self, steps: int) -> NDArray[np.float32]:
        """[layers, experts, steps * experts]: the transition's first powers side by side, one product per forecast.

        Every row of the transition sums to top_k; divided by it, an expert's chance becomes its share again.
        """
        if self._rollout.shape[2] != steps * self.experts:
            power = self._transition
            powers = [power]
            for _ in range(steps - 1):
                power = np.matmul(power / self.top_k, self._transition)
                powers.append(power)
            self._rollout = np.concatenate(powers, axis=2)
        return self._rollout

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write the statistics (float16) as one predictor file, whole or not at all."""
        about = {
            "geometry": {"layers": self.layers, "experts": self.experts, "top_k": self.top_k},
            "ranges": self.ranges,
            "settings": {"recent": self.recent, "momentum": self.momentum},
            "training": training or {},
        }
        write_container(path, KIND, {"transition": self._transition.astype(np.float16)}, about)

    @staticmethod
    def load(path: Path) -> FirstOrder:
        """Read what `save` wrote; anything else is an `InputError` that names the file."""
        about, tensors = read_container(path)
        if about["kind"] != KIND:
            raise InputError(f"{path}: a predictor of kind {about['kind']!r}, not {KIND!r}")
        return restore(about, tensors)


def restore(about: dict[str, Any], tensors: Tensors) -> FirstOrder:
    """The predictor that a file describes."""
    settings = about["settings"]
    transition = tensors["transition"].astype(np.float32)
    return FirstOrder(transition, about["geometry"]["top_k"], recent=settings["recent"], momentum=settings["momentum"])


def fit(traces: TraceSet, recent: float = 0.0, momentum: float = 0.9) -> FirstOrder:
    """Count transitions between consecutive tokens of each request; rows without data fall back to popularity."""
    layers, experts = traces.layers, traces.experts
    together = np.zeros((layers, experts, experts), dtype=np.float64)
    seen = np.zeros((layers, experts), dtype=np.float64)
    popular = np.zeros((layers, experts), dtype=np.float64)
    for request in traces.requests:
        active = active_in(request, experts)
        present = present_of(active)
        before = (active[:-1] * (present[:-1] & present[1:])[..., None]).transpose(1, 2, 0)
        together += np.matmul(before, active[1:].transpose(1, 0, 2))
        seen += before.sum(-1)
        popular += active.sum(0)
    tokens = np.maximum(popular.sum(-1, keepdims=True), 1) / traces.top_k
    prior = popular / tokens
    transition = (together + _SMOOTHING * prior[:, None]) / (seen[..., None] + _SMOOTHING)
    return FirstOrder(transition.astype(np.float32), traces.top_k, recent, momentum)
