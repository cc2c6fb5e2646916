"""Routing traces: which experts every token of a request used, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SCHEMA = 1
MISSING = -1
# Ids of experts are int16, positions int32.
_MOST_EXPERTS, _LARGEST_POSITION = 2**15, 2**31 - 1
PREFILL, DECODE = 0, 1
# How a router turns logits into weights. Psi of the paper is the renormalised weight for the first two; for the others
# it needs the logits of the active experts.
ROUTERS = ("softmax_renormalised", "softmax", "sigmoid", "sqrtsoftplus", "unknown")


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """One request; a step is one token.

    ``experts`` int16 [steps, layers, k] in router order, `MISSING` where the source has no row; ``weights`` float32 of
    the same shape, as the router gave them, or None; ``logits`` likewise, the router's logits of the active experts;
    ``phase`` uint8 [steps], `PREFILL` or `DECODE`; ``token_ids`` int32 [steps], or None. ``prompt_length`` counts the
    prompt's tokens even where their routing is missing, and is 0 where it is not known; ``first_position`` is the
    position in the request of the first step that is here. ``early`` int16 [steps, layers, m] are the experts that a
    layer's router chooses on the state that the layer before it received, best first; `MISSING` for layer 0. Requests
    of one ``group`` continue the same prompt or conversation: they never fall on both sides of a split.
    """

    experts: NDArray[np.int16]
    phase: NDArray[np.uint8]
    weights: NDArray[np.float32] | None = None
    logits: NDArray[np.float32] | None = None
    token_ids: NDArray[np.int32] | None = None
    early: NDArray[np.int16] | None = None
    prompt_length: int = 0
    first_position: int = 0
    dataset: str = ""
    identifier: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        if self.experts.ndim != 3:
            raise ValueError(f"experts: expected [steps, layers, k], got shape {self.experts.shape}")
        for name in ("phase", "token_ids"):
            values = getattr(self, name)
            if values is not None and values.shape != self.experts.shape[:1]:
                raise ValueError(f"{name}: {values.shape[0]} entries for {self.experts.shape[0]} steps")
        for name in ("weights", "logits"):
            values = getattr(self, name)
            if values is not None and values.shape != self.experts.shape:
                raise ValueError(f"{name}: shape {values.shape} differs from experts {self.experts.shape}")
        if self.early is not None and self.early.shape[:2] != self.experts.shape[:2]:
            raise ValueError(f"early: shape {self.early.shape} does not fit experts {self.experts.shape}")
        for name in ("prompt_length", "first_position"):
            if not 0 <= getattr(self, name) <= _LARGEST_POSITION:
                raise ValueError(f"{name} = {getattr(self, name)}: expected 0 to {_LARGEST_POSITION}")
        for name in ("dataset", "identifier", "group"):
            getattr(self, name).encode()  # half a surrogate pair, which JSON can hold, is no text

    @property
    def decode_steps(self) -> int:
        """Steps that produced an output token."""
        return int((self.phase == DECODE).sum())

    @property
    def positions(self) -> NDArray[np.int32]:
        """Position of each step in its request, int32 [steps]."""
        return np.arange(self.first_position, self.first_position + len(self.experts), dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class TraceSet:
    """Requests of one model; a sequence of them that reads from the disk may be larger than memory.

    ``experts`` is the number of experts per layer, ``top_k`` what was really used, ``model_top_k`` the model's own (0
    if not known), ``expert_bytes`` the mean size of an expert, 0 where the source does not tell. ``router`` is one of
    `ROUTERS`.
    """

    model: str
    layers: int
    experts: int
    top_k: int
    requests: Sequence[RequestTrace]
    source: str = ""
    expert_bytes: int = 0
    model_top_k: int = 0
    router: str = "unknown"
    licence: str = ""

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise ValueError(f"router = {self.router!r}; expected one of {', '.join(ROUTERS)}")
        if not 0 < self.top_k <= self.experts or self.layers < 1:
            raise ValueError(f"layers = {self.layers}, experts = {self.experts}, top_k = {self.top_k}: not a geometry")
        if self.experts > _MOST_EXPERTS:
            raise ValueError(f"experts = {self.experts}: expected {_MOST_EXPERTS} at most")
        if not 0 <= self.model_top_k <= self.experts:
            raise ValueError(f"model_top_k = {self.model_top_k}: expected 1 to {self.experts}, or 0 if not known")
        if self.expert_bytes < 0:
            raise ValueError(f"expert_bytes = {self.expert_bytes}: negative")
        if isinstance(self.requests, tuple):  # any other sequence checks each request as it reads it
            for index, request in enumerate(self.requests):
                self.check(request, f"request {index}")

    def check(self, request: RequestTrace, where: str) -> None:
        """Raise ``ValueError``, prefixed with ``where``, for a request that is not of this geometry."""
        if request.experts.shape[1:] != (self.layers, self.top_k):
            raise ValueError(f"{where}: shape {request.experts.shape[1:]}, expected ({self.layers}, {self.top_k})")
        if (
            request.experts.size
            and not MISSING <= int(request.experts.min()) <= int(request.experts.max()) < self.experts
        ):
            raise ValueError(f"{where}: an expert id outside 0 to {self.experts - 1}")
        for name in ("weights", "logits"):
            values = getattr(request, name)
            if values is not None and not np.isfinite(values).all():
                raise ValueError(f"{where}: {name} that are no finite numbers")
