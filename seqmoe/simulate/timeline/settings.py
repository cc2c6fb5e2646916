"""What SeqMoE leaves to be chosen: how much is prefetched, how far it looks ahead, how many networks forecast."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from seqmoe.predictor.base import Ranges
from seqmoe.simulate.timeline.oracle import EXTRA, ROWS


@dataclass(frozen=True, slots=True)
class Settings:
    """``extra`` tasks a layer beyond top k (k' - k), ``horizon`` steps of the rollout (c), ``predictors`` networks.

    The defaults are the paper's (sections 6 and 7). Each network forecasts its share of the layers as soon as the last
    of them is through; together they have the same bytes, however many they are (section 9.5).
    """

    extra: int = EXTRA
    horizon: int = ROWS - 1
    predictors: int = 2

    def __post_init__(self) -> None:
        if self.extra < 0:
            raise ValueError(f"extra = {self.extra}: must not be negative")
        if not 1 <= self.horizon < ROWS:
            raise ValueError(f"horizon = {self.horizon}: must lie in 1 to {ROWS - 1}")
        if self.predictors < 1:
            raise ValueError(f"predictors = {self.predictors}: must be at least 1")

    def ranges(self, layers: int) -> Ranges:
        """First layer and last layer exclusive of each network; no more of them than layers."""
        count = min(self.predictors, layers)
        edges = [index * layers // count for index in range(count + 1)]
        return tuple(pairwise(edges))


PAPER = Settings()
