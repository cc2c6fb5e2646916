"""The routing of prompts that run together: one layer's, all tokens at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class PromptEvent:
    """``experts`` int32 [batch * steps, k] and ``weights`` float32, request after request, as a router chose them.

    Prompts end together: ``real`` bool [batch * steps] says which tokens are no padding, which lies on the left.
    """

    experts: NDArray[np.int32]
    weights: NDArray[np.float32]
    real: NDArray[np.bool_]
    batch: int

    @property
    def steps(self) -> int:
        """Tokens of the longest prompt."""
        return len(self.experts) // self.batch

    def active(self, experts: int) -> NDArray[np.bool_]:
        """Which experts each step needs, over all requests, bool [steps, experts]."""
        result = np.zeros((self.steps, experts), dtype=bool)
        step = np.tile(np.arange(self.steps), self.batch)[self.real]
        result[step[:, None], self.experts[self.real]] = True
        return result

    def activation(self, experts: int) -> NDArray[np.float32]:
        """Psi of each step, mean over the requests that have begun, float32 [steps, experts]."""
        share = self.weights / np.maximum(self.weights.sum(-1, keepdims=True), np.finfo(np.float32).tiny)
        result = np.zeros((self.steps, experts), dtype=np.float32)
        step = np.tile(np.arange(self.steps), self.batch)
        np.add.at(result, (step[self.real][:, None], self.experts[self.real]), share[self.real])
        begun = np.maximum(np.bincount(step[self.real], minlength=self.steps), 1).astype(np.float32)
        return result / begun[:, None]
