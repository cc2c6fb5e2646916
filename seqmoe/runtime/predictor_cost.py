"""What of a predictor's time is arithmetic: the products of its matrices, without PyTorch's share for each operator."""

from __future__ import annotations

import time

import numpy as np

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.trained import TrainedPredictor

_ROUNDS = 40


def arithmetic_seconds(predictor: Predictor | None, lookahead: int) -> float | None:
    """Seconds that the matrix-vector products of one decode step's forecasts take in numpy, median of some rounds.

    Each range's network runs once for the next step and ``lookahead`` times for the rollout. It is what a step in the
    core could not go below by much; None for predictors that are no networks.
    """
    if not isinstance(predictor, TrainedPredictor):
        return None
    matrices = [
        tensor.detach().float().cpu().numpy()
        for network in predictor.networks
        for tensor in network.parameters()
        if tensor.dim() == 2
    ]
    vectors = [(np.ones(m.shape[1], np.float32), np.empty(m.shape[0], np.float32)) for m in matrices]
    seconds = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        for _ in range(lookahead + 1):
            for matrix, (vector, out) in zip(matrices, vectors, strict=True):
                np.dot(matrix, vector, out=out)
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds))
