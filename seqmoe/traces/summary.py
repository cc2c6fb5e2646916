"""What is known of a request without reading its routing, and the hash of what it holds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seqmoe.spec.trace import RequestTrace

_ARRAYS = ("experts", "phase", "weights", "logits", "token_ids", "early")
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Summary:
    """One request in brief: enough to select by."""

    identifier: str
    dataset: str
    steps: int
    prompt_length: int


@runtime_checkable
class Columns(Protocol):
    """A sequence of requests that can tell a column without reading the routing."""

    def column(self, name: str) -> list[Any]:
        """The values of one of `seqmoe.traces.rows.BRIEF`, request by request."""
        ...


def column(requests: Sequence[RequestTrace], name: str) -> list[Any]:
    """A column of any sequence of requests; see `Columns` for the names."""
    if isinstance(requests, Columns):
        return requests.column(name)
    if name == "steps":
        return [len(request.experts) for request in requests]
    if name == "digest":
        return [request_digest(request) for request in requests]
    return [getattr(request, name) for request in requests]


def summaries(requests: Sequence[RequestTrace]) -> list[Summary]:
    """A `Summary` of every request, in order."""
    names = ("identifier", "dataset", "steps", "prompt_length")
    return [Summary(*values) for values in zip(*(column(requests, name) for name in names), strict=True)]


def request_digest(request: RequestTrace) -> str:
    """16 hex digits of the SHA-256 over everything that a request holds; equal wherever it is kept."""
    state = hashlib.sha256()
    about: tuple[int | str, ...] = (
        request.prompt_length,
        request.first_position,
        request.dataset,
        request.identifier,
        *([request.group] if request.group else []),
    )
    state.update(repr(about).encode())
    for name in _ARRAYS:
        values = getattr(request, name)
        if values is not None:
            little = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
            state.update(f"{name}{little.dtype.str}{little.shape}".encode())
            state.update(little.tobytes())
    return state.hexdigest()[:_DIGITS]


def set_digest(about: tuple[str | int, ...], digests: Sequence[str]) -> str:
    """12 hex digits over the geometry ``about`` and the digests of the requests in their order."""
    return hashlib.sha256((repr(about) + "".join(digests)).encode()).hexdigest()[:12]
