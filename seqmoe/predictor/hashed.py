"""Layers whose experts follow from the token alone (DeepSeek-V4's hash routers): known, so that nothing predicts them.

The table from token to experts is read off the traces, where it is exact for every token that occurred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import MISSING, RequestTrace, TraceSet

# A layer is taken for hashed if this many repeated tokens chose the same experts again, and none did not.
LEAST_REPEATS = 100


@dataclass(frozen=True, slots=True, eq=False)
class HashTable:
    """``experts`` int16 [tokens, hashed layers, k] of the ``tokens`` int32, ascending, in the model's ``layers``."""

    layers: tuple[int, ...]
    tokens: NDArray[np.int32]
    experts: NDArray[np.int16]

    def __post_init__(self) -> None:
        if self.experts.shape[:2] != (len(self.tokens), len(self.layers)) or (np.diff(self.tokens) <= 0).any():
            raise ValueError(
                f"a table of {self.experts.shape} for {len(self.tokens)} tokens, {len(self.layers)} layers"
            )

    def find(self, token_ids: NDArray[np.int32]) -> tuple[NDArray[np.bool_], NDArray[np.int16]]:
        """Which of the tokens the table knows, bool [n], and the experts of these, int16 [known, hashed layers, k]."""
        place = np.minimum(np.searchsorted(self.tokens, token_ids), len(self.tokens) - 1)
        known: NDArray[np.bool_] = self.tokens[place] == token_ids
        return known, self.experts[place[known]]

    def frequency(self, experts: int) -> NDArray[np.float32]:
        """Share of the table's tokens that use each expert, float32 [hashed layers, experts]: for an unknown token."""
        layers = np.arange(len(self.layers))[None, :, None]
        counts = np.zeros((len(self.layers), experts), dtype=np.float32)
        np.add.at(counts, (np.broadcast_to(layers, self.experts.shape), self.experts), 1)
        return counts / np.float32(len(self.tokens))


def find_hash_table(traces: TraceSet, least_repeats: int = LEAST_REPEATS) -> HashTable | None:
    """The table of the traces' hashed layers; None where no layer is, or where the traces carry no token ids.

    Steps that lack a layer say nothing. Where no layer is hashed, a single request or so shows it.
    """
    hashed = np.ones(traces.layers, dtype=np.bool_)
    table: dict[int, NDArray[np.int16]] = {}
    repeats = 0
    for request in traces.requests:
        if request.token_ids is None:
            return None
        chosen = np.sort(request.experts, axis=-1)
        for token, experts in zip(request.token_ids.tolist(), chosen, strict=True):
            if (experts[hashed] == MISSING).any():
                continue
            before = table.setdefault(token, experts)
            if before is not experts:
                hashed &= (before == experts).all(-1)
                repeats += 1
                if not hashed.any():
                    return None
    if repeats < least_repeats or hashed.all():  # in all layers: no router at all, but traces that say too little
        return None
    tokens = np.array(sorted(table), dtype=np.int32)
    layers = tuple(map(int, np.flatnonzero(hashed)))
    return HashTable(layers, tokens, np.stack([table[token][hashed] for token in tokens.tolist()]))


def without_layers(traces: TraceSet, layers: Sequence[int]) -> TraceSet:
    """The same traces less some layers, read lazily: what the predictor of the other layers is made from."""
    kept = kept_layers(traces.layers, layers)
    return replace(traces, layers=len(kept), requests=_Without(traces.requests, kept))


def kept_layers(count: int, dropped: Sequence[int]) -> NDArray[np.int64]:
    """The layers that are left, ascending."""
    return np.setdiff1d(np.arange(count, dtype=np.int64), np.array(dropped, dtype=np.int64))


class _Without(Sequence[RequestTrace]):
    def __init__(self, whole: Sequence[RequestTrace], kept: NDArray[np.int64]) -> None:
        self._whole = whole
        self._kept = kept

    def __len__(self) -> int:
        return len(self._whole)

    @overload
    def __getitem__(self, index: int) -> RequestTrace: ...
    @overload
    def __getitem__(self, index: slice) -> _Without: ...
    def __getitem__(self, index: int | slice) -> RequestTrace | _Without:
        if isinstance(index, slice):
            return _Without(self._whole[index], self._kept)
        request = self._whole[index]
        names = ("experts", "weights", "logits", "early")
        parts = {name: value[:, self._kept] for name in names if (value := getattr(request, name)) is not None}
        return replace(request, **parts)
