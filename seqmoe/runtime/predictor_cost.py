"""What a predictor that runs in the C++ core would take in PyTorch, operator by operator."""

from __future__ import annotations

import time

import numpy as np

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.mamba2.core import stepper_of
from seqmoe.predictor.running import TorchRunning
from seqmoe.predictor.trained import TrainedPredictor

_ROUNDS, _WARM_UP = 20, 3


def pytorch_seconds(predictor: Predictor | None, lookahead: int) -> float | None:
    """Seconds that one decode step's forecasts take in PyTorch, with a rollout of ``lookahead``: median of some rounds.

    Each range's network takes in a step and forecasts, on a state of its own and with nothing else in between. None for
    predictors that do not run in the core, for which there is nothing to compare.
    """
    if not isinstance(predictor, TrainedPredictor) or not predictor.psi:
        return None
    if any(stepper_of(network) is None for network in predictor.networks):
        return None
    followers = [TorchRunning(network, predictor.psi) for network in predictor.networks]
    rows = [np.full((network.shape.layers, predictor.experts), 1 / predictor.experts, np.float32)
            for network in predictor.networks]  # fmt: skip
    seconds = []
    for _ in range(_WARM_UP + _ROUNDS):
        begun = time.perf_counter()
        for follower, row, confidence in zip(followers, rows, predictor.confidence, strict=True):
            follower.observe(row)
            follower.forecast(lookahead, confidence)
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds[_WARM_UP:]))
