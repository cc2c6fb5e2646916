"""What a routing trace looks like: load, reuse from token to token, diversity. Read request by request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import DECODE, MISSING, TraceSet

QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class RoutingStatistics:
    """Means over layers, of decode tokens (``tokens``); prefill tokens are only counted.

    ``entropy`` is the load entropy over log(experts), lowest layer in ``entropy_min``; ``overlap`` the share of a
    token's experts that the previous token used too, ``overlap_shuffled`` the same with the tokens of each request in
    random order; ``distinct`` the distinct experts per layer and request. ``reuse_median`` is the median of how many
    tokens ago an expert was last used in its request and layer (1: by the previous token), over all uses but the first
    of each expert; ``first_use`` the share of those first uses.
    """

    requests: int
    tokens: int
    entropy: float
    entropy_min: float
    overlap: float
    overlap_shuffled: float
    distinct: float
    prefill_tokens: int = 0
    reuse_median: float = 0.0
    first_use: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RoutingProfile:
    """The statistics, layer by layer.

    ``load`` int64 [layers, experts] counts uses; ``entropy``, ``overlap``, ``overlap_shuffled`` and ``distinct`` are
    float64 [layers], NaN for a layer without routing; ``reuse`` int64 [layers, longest + 1] counts uses by the reuse
    distance in events of the layer (column 0 is empty), ``first_uses`` int64 [layers] those that have none;
    ``lengths`` int64 [requests] are decode tokens.
    """

    statistics: RoutingStatistics
    load: NDArray[np.int64]
    entropy: NDArray[np.float64]
    overlap: NDArray[np.float64]
    overlap_shuffled: NDArray[np.float64]
    distinct: NDArray[np.float64]
    reuse: NDArray[np.int64]
    first_uses: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def reuse_quantiles(self) -> dict[str, float]:
        """Reuse distances at `QUANTILES`, of all layers together."""
        return {f"{share:g}": quantile(self.reuse.sum(0), share) for share in QUANTILES}


def quantile(counts: NDArray[np.int64], share: float) -> float:
    """The smallest value v such that ``share`` of all observations are at most v; ``counts[v]`` of them are v."""
    total = np.cumsum(counts)
    return float(np.searchsorted(total, share * total[-1])) if len(counts) and total[-1] else 0.0


def routing_statistics(traces: TraceSet, seed: int = 0) -> RoutingStatistics:
    """Statistics over all requests; tokens whose layer is missing are left out."""
    return routing_profile(traces, seed).statistics


def routing_profile(traces: TraceSet, seed: int = 0, progress: Callable[[int], None] | None = None) -> RoutingProfile:
    """Statistics layer by layer; one request is in memory at a time. ``progress`` is told the requests that are done.

    ``seed`` orders the tokens for ``overlap_shuffled``.
    """
    rng = np.random.default_rng(seed)
    layers, experts, top_k = traces.layers, traces.experts, traces.top_k
    load = np.zeros((layers, experts), dtype=np.int64)
    same, shuffled, pairs, shuffled_pairs, distinct = (np.zeros(layers) for _ in range(5))
    held = np.zeros(layers, dtype=np.int64)
    reuse, first_uses = np.zeros((layers, 1), dtype=np.int64), np.zeros(layers, dtype=np.int64)
    lengths, prefill = [], 0
    for number, request in enumerate(traces.requests, start=1):
        chosen = request.experts[request.phase == DECODE]
        prefill += len(request.phase) - len(chosen)
        lengths.append(len(chosen))
        if len(chosen):
            active = _activation(chosen, experts)
            load += active.sum(0)
            distinct += active.any(0).sum(-1)
            held += active.any((0, 2))
            if len(active) > 1:
                _add_overlap(active, same, pairs)
                _add_overlap(active[rng.permutation(len(active))], shuffled, shuffled_pairs)
            distances, firsts = _reuse_distances(chosen, experts)
            reuse = _sum(reuse, distances)
            first_uses += firsts
        if progress is not None:
            progress(number)
    share = load / np.maximum(load.sum(-1, keepdims=True), 1)
    entropy = -(share * np.log(np.where(share > 0, share, 1))).sum(-1) / np.log(max(experts, 2))
    entropy[load.sum(-1) == 0] = np.nan
    by_layer = _divided(distinct, held)
    return RoutingProfile(
        statistics=RoutingStatistics(
            requests=len(traces.requests),
            tokens=sum(lengths),
            entropy=_mean(entropy),
            entropy_min=float(np.nanmin(entropy)) if load.any() else 0.0,
            overlap=float(same.sum() / max(pairs.sum() * top_k, 1)),
            overlap_shuffled=float(shuffled.sum() / max(shuffled_pairs.sum() * top_k, 1)),
            distinct=_mean(by_layer),
            prefill_tokens=prefill,
            reuse_median=quantile(reuse.sum(0), 0.5),
            first_use=float(first_uses.sum() / max(load.sum(), 1)),
        ),
        load=load,
        entropy=entropy,
        overlap=_divided(same, pairs * top_k),
        overlap_shuffled=_divided(shuffled, shuffled_pairs * top_k),
        distinct=by_layer,
        reuse=reuse,
        first_uses=first_uses,
        lengths=np.array(lengths, dtype=np.int64),
    )


def _activation(experts: NDArray[np.int16], count: int) -> NDArray[np.bool_]:
    """Boolean [steps, layers, experts]; all False where the source has no row."""
    active = np.zeros((*experts.shape[:2], count), dtype=bool)
    steps, layers, _ = np.nonzero(experts != MISSING)
    active[steps, layers, experts[experts != MISSING]] = True
    return active


def _add_overlap(active: NDArray[np.bool_], same: NDArray[np.float64], pairs: NDArray[np.float64]) -> None:
    """Add, layer by layer, the experts that neighbours share, and the neighbours that both have the layer."""
    present: NDArray[np.bool_] = np.any(active, axis=-1)
    same += (active[1:] & active[:-1]).sum((0, 2))
    pairs += (present[1:] & present[:-1]).sum(0)


def _reuse_distances(experts: NDArray[np.int16], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of one request: uses by distance [layers, longest + 1], and uses without an earlier one [layers]."""
    _, layers, _ = experts.shape
    present: NDArray[np.bool_] = np.all(experts != MISSING, axis=-1)
    event = np.cumsum(present, axis=0) - 1
    step, layer = np.nonzero(present)
    key = (layer[:, None] * count + experts[step, layer]).ravel()
    place = np.repeat(event[step, layer], experts.shape[2])
    order = np.argsort(key, kind="stable")  # by layer and expert, tokens ascending within
    key, place = key[order], place[order]
    again: NDArray[np.bool_] = np.equal(key[1:], key[:-1])
    owner, distance = key[1:][again] // count, np.diff(place)[again]
    longest = int(distance.max(initial=0))
    counts = np.bincount(owner * (longest + 1) + distance, minlength=layers * (longest + 1))
    firsts = np.bincount(key[np.r_[True, ~again]] // count, minlength=layers) if len(key) else np.zeros(layers, int)
    return counts.reshape(layers, longest + 1), firsts


def _sum(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of two [layers, n] of different n."""
    if one.shape[1] < other.shape[1]:
        one, other = other, one
    total = one.copy()
    total[:, : other.shape[1]] += other
    return total


def _divided(total: NDArray[np.float64], count: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: NDArray[np.float64]) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else 0.0
