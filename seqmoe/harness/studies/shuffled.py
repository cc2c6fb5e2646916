"""The same sequences with their steps in another order: what is left for a predictor when the order says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from seqmoe.spec.trace import RequestTrace, TraceSet

_PER_STEP = ("experts", "phase", "weights", "logits", "token_ids", "early")


def shuffled(traces: TraceSet, seed: int = 0) -> TraceSet:
    """The set with the steps of every request permuted, each read when it is asked for; prompt and answer are mixed."""
    return replace(traces, requests=_Shuffled(traces.requests, seed))


class _Shuffled(Sequence[RequestTrace]):
    def __init__(self, requests: Sequence[RequestTrace], seed: int) -> None:
        self._requests = requests
        self._seed = seed

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> RequestTrace: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RequestTrace]: ...
    def __getitem__(self, index: int | slice) -> RequestTrace | Sequence[RequestTrace]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        request = self._requests[place]
        order = np.random.default_rng([self._seed, place]).permutation(len(request.experts))
        parts = {name: getattr(request, name) for name in _PER_STEP}
        permuted: dict[str, Any] = {name: None if part is None else part[order] for name, part in parts.items()}
        return replace(request, **permuted)
