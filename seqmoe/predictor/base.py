"""What every predictor can do: see a prompt, see a step, and forecast the next steps of some layers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.forecast import Forecast


class Predictor(Protocol):
    """A forecaster of expert activations for one running batch.

    ``activation`` is float32 [layers, experts]: each expert's share of the routing weight in a step (``Psi`` of the
    paper for a softmax router with renormalised top-k), mean over the batch.
    """

    layers: int
    experts: int

    def reset(self) -> None:
        """Forget the request."""
        ...

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive)."""
        ...

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more."""
        ...
