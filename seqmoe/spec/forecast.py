"""A forecast of expert activations: what predictors produce and everything downstream consumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """``probability`` float32 [horizon + 1, layers, experts]; row 0 is the next step. It may be read-only.

    ``first_layer`` says which layer of the model column 0 describes: a predictor that is triggered in the middle of a
    step covers only the layers it is responsible for. ``use`` float32 [layers, experts], from predictors that forecast
    it directly, is the discounted future use: the sum over the next steps j of (1 - g) g^j where the expert is active.
    """

    probability: NDArray[np.float32]
    first_layer: int = 0
    use: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.probability.ndim != 3:
            raise ValueError(f"probability: expected [horizon + 1, layers, experts], got {self.probability.shape}")
        if self.use is not None and self.use.shape != self.probability.shape[1:]:
            raise ValueError(f"use: shape {self.use.shape} does not fit probability {self.probability.shape}")
