"""Routing traces: which experts every token of a request used, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MISSING = -1
PREFILL, DECODE = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """One request.

    ``experts`` int16 [steps, layers, k] in router order, `MISSING` where the source has no row; ``weights`` float32 of
    the same shape or None; ``phase`` uint8 [steps], `PREFILL` or `DECODE`, one step per token.
    """

    experts: NDArray[np.int16]
    phase: NDArray[np.uint8]
    weights: NDArray[np.float32] | None = None
    dataset: str = ""

    def __post_init__(self) -> None:
        if self.experts.ndim != 3:
            raise ValueError(f"experts: expected [steps, layers, k], got shape {self.experts.shape}")
        if self.phase.shape != self.experts.shape[:1]:
            raise ValueError(f"phase: {self.phase.shape[0]} entries for {self.experts.shape[0]} steps")
        if self.weights is not None and self.weights.shape != self.experts.shape:
            raise ValueError(f"weights: shape {self.weights.shape} differs from experts {self.experts.shape}")

    @property
    def decode_steps(self) -> int:
        """Steps that produced an output token."""
        return int((self.phase == DECODE).sum())


@dataclass(frozen=True, slots=True)
class TraceSet:
    """Requests of one model.

    ``experts`` is the number of experts per layer, ``top_k`` what was really used, ``expert_bytes`` the mean size of an
    expert, 0 where the source does not tell.
    """

    model: str
    layers: int
    experts: int
    top_k: int
    requests: tuple[RequestTrace, ...]
    source: str = ""
    expert_bytes: int = 0

    def __post_init__(self) -> None:
        for index, request in enumerate(self.requests):
            if request.experts.shape[1:] != (self.layers, self.top_k):
                raise ValueError(
                    f"request {index}: shape {request.experts.shape[1:]}, expected ({self.layers}, {self.top_k})"
                )
            if request.experts.size and int(request.experts.max()) >= self.experts:
                raise ValueError(f"request {index}: expert {int(request.experts.max())} of {self.experts}")
