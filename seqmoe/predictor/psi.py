"""Psi of the paper: from what a router chose to what a predictor reads.

Inactive experts' logits become minus infinity, then comes the softmax over experts: what is left is the softmax over
the active experts' logits, and zero elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import MISSING, ROUTERS, RequestTrace, TraceSet

# An active expert is told from an inactive one by its sign, so that no rounding (weights of 8 bits, say) may make it 0.
_LEAST = 1e-6


def activations(request: RequestTrace, experts: int, router: str = "unknown", psi: bool = True) -> NDArray[np.float32]:
    """Activation float32 [steps, layers, experts] of each step; positive exactly for active experts if ``psi``.

    From the logits of the active experts where the trace has them. Without them, the weights divided by their sum: for
    both softmax ``router`` kinds that is the same number, for the others (sigmoid, sqrtsoftplus, unknown) the nearest
    that the trace can give. Without weights, 1 / k each. A layer that the source lacks is all zero.

    ``psi=False`` is the ablation "Psi off": the raw logits of the active experts, zero for the others. Where the trace
    has no logits, 1 + log(weight / smallest weight of the layer), which differs from a softmax router's logits by a
    constant per layer, so that the smallest still stands out from the inactive experts.
    """
    if router not in ROUTERS:
        raise ValueError(f"router = {router!r}; expected one of {', '.join(ROUTERS)}")
    present = request.experts != MISSING
    values = _values(request, present) if psi else _raw(request, present)
    steps, layers, _ = request.experts.shape
    result = np.zeros((steps, layers, experts), dtype=np.float32)
    index = np.where(present, request.experts, 0).astype(np.int64)
    if present.all():
        np.put_along_axis(result, index, values, axis=-1)
    else:
        step, layer, place = np.nonzero(present)
        result[step, layer, index[step, layer, place]] = values[step, layer, place]
    return result


def inputs_of(predictor: object, request: RequestTrace, traces: TraceSet) -> NDArray[np.float32]:
    """What a predictor reads of a request of ``traces``: Psi, unless it was trained without and says so (``psi``)."""
    return activations(request, traces.experts, traces.router, bool(getattr(predictor, "psi", True)))


def psi_of_logits(logits: NDArray[np.floating], top_k: int) -> NDArray[np.float32]:
    """Psi of a prediction [..., experts] before it is fed back: softmax over its ``top_k`` largest, zero elsewhere."""
    if not 0 < top_k <= logits.shape[-1]:
        raise ValueError(f"top_k = {top_k}: must lie in 1..{logits.shape[-1]}")
    kept = np.argpartition(logits, -top_k, axis=-1)[..., -top_k:]
    result = np.zeros(logits.shape, dtype=np.float32)
    np.put_along_axis(result, kept, _softmax(np.take_along_axis(logits, kept, axis=-1)), axis=-1)
    return result


def _values(request: RequestTrace, present: NDArray[np.bool_]) -> NDArray[np.float32]:
    if request.logits is not None:
        values = _softmax(np.where(present, request.logits, -np.inf))
    elif request.weights is not None:
        values = np.where(present, request.weights, 0).astype(np.float32)
    else:
        values = present.astype(np.float32)
    values = np.where(present, np.maximum(values, _LEAST), 0)
    return (values / np.maximum(values.sum(-1, keepdims=True), _LEAST)).astype(np.float32)


def _raw(request: RequestTrace, present: NDArray[np.bool_]) -> NDArray[np.float32]:
    if request.logits is not None:
        return np.where(present, request.logits, 0).astype(np.float32)
    weights = np.where(present, _values(request, present), 1)
    return np.where(present, 1 + np.log(weights / weights.min(-1, keepdims=True)), 0).astype(np.float32)


def _softmax(logits: NDArray[np.floating]) -> NDArray[np.float32]:
    """Over the last axis; a row of minus infinities becomes zeros."""
    largest = logits.max(-1, keepdims=True)
    raised = np.exp(logits - np.where(np.isfinite(largest), largest, 0))
    return (raised / np.maximum(raised.sum(-1, keepdims=True), np.finfo(np.float32).tiny)).astype(np.float32)
