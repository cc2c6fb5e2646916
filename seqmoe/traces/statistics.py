"""What a routing trace looks like: load, reuse from token to token, diversity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import DECODE, MISSING, TraceSet


@dataclass(frozen=True, slots=True)
class RoutingStatistics:
    """Means over layers, of decode tokens.

    ``entropy`` is the load entropy over log(experts), lowest layer in ``entropy_min``; ``overlap`` the share of a
    token's experts that the previous token used too, ``overlap_shuffled`` the same with the tokens of each request in
    random order; ``distinct`` the distinct experts per layer and request.
    """

    requests: int
    tokens: int
    entropy: float
    entropy_min: float
    overlap: float
    overlap_shuffled: float
    distinct: float


def routing_statistics(traces: TraceSet, seed: int = 0) -> RoutingStatistics:
    """Statistics over all requests; tokens whose layer is missing are left out."""
    rng = np.random.default_rng(seed)
    load = np.zeros((traces.layers, traces.experts))
    same, shuffled, pairs, tokens = 0.0, 0.0, 0, 0
    distinct: list[float] = []
    for request in traces.requests:
        active = _activation(request.experts[request.phase == DECODE], traces.experts)
        if not len(active):
            continue
        tokens += len(active)
        load += active.sum(0)
        distinct.append(float(active.any(0).sum(-1).mean()))
        if len(active) > 1:
            pairs += len(active) - 1
            same += _overlap(active, traces.top_k)
            shuffled += _overlap(active[rng.permutation(len(active))], traces.top_k)
    share = load / np.maximum(load.sum(-1, keepdims=True), 1)
    entropy = -(share * np.log(np.where(share > 0, share, 1))).sum(-1) / np.log(traces.experts)
    return RoutingStatistics(
        requests=len(traces.requests),
        tokens=tokens,
        entropy=float(entropy.mean()),
        entropy_min=float(entropy.min()),
        overlap=same / max(pairs, 1),
        overlap_shuffled=shuffled / max(pairs, 1),
        distinct=float(np.mean(distinct)) if distinct else 0.0,
    )


def _activation(experts: NDArray[np.int16], count: int) -> NDArray[np.bool_]:
    """Boolean [steps, layers, experts]; all False where the source has no row."""
    active = np.zeros((*experts.shape[:2], count), dtype=bool)
    steps, layers, _ = np.nonzero(experts != MISSING)
    active[steps, layers, experts[experts != MISSING]] = True
    return active


def _overlap(active: NDArray[np.bool_], top_k: int) -> float:
    return float((active[1:] & active[:-1]).sum(-1).mean(-1).sum() / top_k)
