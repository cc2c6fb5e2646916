"""A forecast of expert activations: what predictors produce and everything downstream consumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """``probability`` float32 [horizon + 1, layers, experts]; row 0 is the next step.

    ``first_layer`` says which layer of the model column 0 describes: a predictor that is triggered in the middle of a
    step covers only the layers it is responsible for.
    """

    probability: NDArray[np.float32]
    first_layer: int = 0

    def __post_init__(self) -> None:
        if self.probability.ndim != 3:
            raise ValueError(f"probability: expected [horizon + 1, layers, experts], got {self.probability.shape}")
