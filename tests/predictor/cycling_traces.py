"""Synthetic traces whose next step is known."""

from __future__ import annotations

import numpy as np

from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet

LAYERS, EXPERTS, TOP_K = 4, 12, 2


def cycling(requests: int = 24, steps: int = 60, seed: int = 0, noise: float = 0.0) -> TraceSet:
    """Each layer's pair of experts moves on by one every step, from a random start: the next step follows from this."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(requests):
        start = rng.integers(0, EXPERTS, LAYERS)
        first = (start + np.arange(steps)[:, None]) % EXPERTS
        jumps = rng.random(first.shape) < noise
        first = np.where(jumps, rng.integers(0, EXPERTS, first.shape), first)
        experts = np.stack([first, (first + 5) % EXPERTS], -1).astype(np.int16)
        weights = np.broadcast_to(np.array([0.7, 0.3], dtype=np.float32), experts.shape).copy()
        phase = np.full(steps, DECODE, dtype=np.uint8)
        made.append(RequestTrace(experts, phase, weights, identifier=str(number)))
    return TraceSet("cycle", LAYERS, EXPERTS, TOP_K, tuple(made), "synthetic", router="softmax_renormalised")
