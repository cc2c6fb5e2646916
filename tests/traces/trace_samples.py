"""Small trace sets that several tests share."""

from __future__ import annotations

import numpy as np

from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet


def request(rng, *, layers=3, experts=8, top_k=2, steps=5, identifier="", full=False, dataset="d"):
    """A random request: its first prefill token lacks the last layer; ``full`` has every optional field."""
    ranked = np.argsort(rng.random((steps, layers, experts)), axis=-1).astype(np.int16)
    chosen = ranked[..., :top_k].copy()
    chosen[0, -1] = MISSING
    phase = np.full(steps, DECODE, dtype=np.uint8)
    phase[: steps // 2] = PREFILL
    weights = rng.random((steps, layers, top_k)).astype(np.float32)
    weights /= weights.sum(-1, keepdims=True)
    weights[0, -1] = 0
    return RequestTrace(
        chosen,
        phase,
        weights,
        logits=rng.normal(size=chosen.shape).astype(np.float32) if full else None,
        token_ids=rng.integers(0, 1000, steps).astype(np.int32) if full else None,
        early=ranked[..., : top_k + 1].copy() if full else None,
        prompt_length=steps // 2,
        first_position=3 if full else 0,
        dataset=dataset,
        identifier=identifier,
    )


def trace_set(count=7, *, seed=0, experts=8, full=False, **about):
    rng = np.random.default_rng(seed)
    requests = tuple(
        request(rng, experts=experts, steps=2 + index % 5, identifier=f"r{index}", full=full, dataset=f"d{index % 2}")
        for index in range(count)
    )
    return TraceSet("tiny", 3, experts, 2, requests, router="softmax_renormalised", **about)


def same(one, other):
    """Whether two requests are equal in every field."""
    for name in ("experts", "phase", "weights", "logits", "token_ids", "early"):
        left, right = getattr(one, name), getattr(other, name)
        if (left is None) != (right is None) or (left is not None and not np.array_equal(left, right)):
            return False
        if left is not None and left.dtype != right.dtype:
            return False
    names = ("prompt_length", "first_position", "dataset", "identifier")
    return all(getattr(one, name) == getattr(other, name) for name in names)
