"""Collects (token, layer) records in any order and lays them out as a request; what is not there stays `MISSING`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace
from seqmoe.traces import validate

# Far more tokens without a record than with one is not a trace with holes but a wrong number.
_HOLES = 1000
# More layers than any model has: a larger number is an error of the file, not a reason to ask for memory.
LAYERS = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One record: ``place`` is its line or key, for messages."""

    token: int
    layer: int
    experts: list[int]
    weights: list[float] | None
    place: str
    phase: int | None = None


@dataclass(slots=True)
class Grid:
    """The records of one request of ``path``; tokens are positions, the first that occurs being the first step."""

    path: str
    name: str
    entries: dict[tuple[int, int], Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Take a record; a second one of the same token and layer is an `InputError`."""
        key = (entry.token, entry.layer)
        if key in self.entries:
            first = self.entries[key].place
            raise InputError(
                f"{self.path}: {entry.place}: token {entry.token}, layer {entry.layer} was already at {first}"
            )
        self.entries[key] = entry

    def request(self, layers: int, top_k: int, experts: int, router: str, **about: Any) -> RequestTrace:
        """Lay out and check the request; ``about`` are further fields of `RequestTrace`."""
        tokens = sorted({token for token, _ in self.entries})
        first, steps = tokens[0], tokens[-1] - tokens[0] + 1
        if steps > 4 * len(tokens) + _HOLES:
            raise InputError(
                f"{self.path}: {self.name}: tokens {first} to {tokens[-1]}, but only {len(tokens)} of them"
            )
        ids = np.full((steps, layers, top_k), MISSING, dtype=np.int16)
        weights = np.zeros((steps, layers, top_k), dtype=np.float32)
        phase = np.full(steps, DECODE, dtype=np.uint8)
        phase[: max(about.get("prompt_length", 0) - first, 0)] = PREFILL
        weighted = {entry.weights is not None for entry in self.entries.values()}
        if len(weighted) > 1:
            without = next(entry for entry in self.entries.values() if entry.weights is None)
            raise InputError(f"{self.path}: {without.place}: no weights, though other records have them")
        for entry in self.entries.values():
            if len(entry.experts) != top_k:
                raise InputError(
                    f"{self.path}: {entry.place}: {len(entry.experts)} experts, but {top_k} before; is it cut short?"
                )
            ids[entry.token - first, entry.layer] = entry.experts
            if entry.weights is not None:
                weights[entry.token - first, entry.layer] = entry.weights
            if entry.phase is not None:
                phase[entry.token - first] = entry.phase
        self._require_whole_end(ids, first)
        validate.routing(ids, experts, lambda step, layer: self._where(step + first, layer))
        if weighted == {True}:
            validate.weights(
                weights, ids, router, lambda step, layer: self._where(step + first, layer), validate.TOLERANCE
            )
        return RequestTrace(ids, phase, weights if weighted == {True} else None, first_position=first, **about)

    def _where(self, token: int, layer: int) -> str:
        entry = self.entries.get((int(token), int(layer)))
        return f"{self.path}: {entry.place if entry else f'token {token}, layer {layer}'}"

    def _require_whole_end(self, ids: NDArray[np.int16], first: int) -> None:
        """Raise `InputError` where the last record's token lacks layers that every other token has: a cut file."""
        absent = (ids == MISSING).all(-1)
        last = next(reversed(self.entries.values())).token - first
        others = np.delete(absent, last, axis=0)
        if len(others) and absent[last].any() and not others.any():
            layer = int(absent[last].argmax())
            raise InputError(
                f"{self.path}: {self.name}: token {last + first}, layer {layer} is missing, though all others have it; "
                "is the file truncated?"
            )
