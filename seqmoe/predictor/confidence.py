"""From a network's logits to the probability that an expert is active, which schedulers add up and compare."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

# The likelihood is nearly quadratic: a small sample settles two numbers.
_SAMPLE = 200_000


class Confidence:
    """Platt's scaling, one line per step of a rollout: sigmoid(slope * log softmax(logits) + offset).

    ``lines`` float32 [steps, 2]; steps beyond the last line use it. The order of experts within a layer is unchanged.
    """

    def __init__(self, lines: NDArray[np.float32]) -> None:
        if lines.ndim != 2 or lines.shape[1] != 2 or not (lines[:, 0] > 0).all():
            raise ValueError(f"lines: expected [steps, 2] with positive slopes, got {lines.shape}")
        self.lines = lines

    @staticmethod
    def uncalibrated(top_k: int) -> Confidence:
        """Odds proportional to the predicted share of the routing weight: even for an average active expert."""
        return Confidence(np.array([[1.0, np.log(top_k)]], dtype=np.float32))

    def probability(self, logits: Tensor, step: int) -> Tensor:
        """[..., experts] -> P(active) of the same shape, ``step`` steps after the next one."""
        slope, offset = self.lines[min(step, len(self.lines) - 1)]
        return torch.sigmoid(torch.log_softmax(logits, -1) * float(slope) + float(offset))


def fit_line(log_share: NDArray[np.float32], active: NDArray[np.bool_], seed: int = 0) -> tuple[float, float]:
    """Slope and offset of the likeliest line through pairs of log softmax and outcome, both of any equal shape."""
    x, y = log_share.ravel().astype(np.float64), active.ravel()
    if len(x) > _SAMPLE:
        chosen = np.random.default_rng(seed).choice(len(x), _SAMPLE, replace=False)
        x, y = x[chosen], y[chosen]
    sign = np.where(y, -1.0, 1.0)

    def loss(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (line[0] * x + line[1])
        slope = sign / (1 + np.exp(-margin))
        return float(np.logaddexp(0, margin).mean()), np.array([(slope * x).mean(), slope.mean()])

    found = minimize(loss, np.array([1.0, 1.0]), jac=True, bounds=[(0.05, 20.0), (-20.0, 20.0)])
    return float(found.x[0]), float(found.x[1])
