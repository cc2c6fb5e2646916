"""The idea beyond the paper: one value per expert that says how soon and how often it is needed, without a rollout.

A cache wants to know each expert's discounted future use, the sum of (1 - g) g^j over the coming steps j in which it is
active. The rollout gives it by eight forecasts, the direct head by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import Predictor, SequenceContext
from seqmoe.predictor.history import active_in
from seqmoe.predictor.psi import inputs_of
from seqmoe.spec.trace import TraceSet

# Of what is kept, as of what is prefetched: three experts more than a token needs.
OFFSET = 3
_STRIDE = 32


def discounted_use(active: NDArray[np.floating], discount: float) -> NDArray[np.float64]:
    """Sum of (1 - discount) discount^j over the first axis, [steps, ...] -> [...]."""
    weights = (1 - discount) * discount ** np.arange(len(active))
    return np.tensordot(weights, active.astype(np.float64), axes=1)


def captured(score: NDArray[np.floating], use: NDArray[np.floating], m: int) -> tuple[float, float]:
    """Of the future use that any ``m`` experts of a layer could hold, what the ``m`` of the highest score do.

    Both [..., experts]. Returns the use that was captured and the most that could be, summed over the layers.
    """
    chosen = np.argsort(-score, axis=-1, kind="stable")[..., :m]
    best = -np.sort(-use, axis=-1)[..., :m]
    return float(np.take_along_axis(use, chosen, axis=-1).sum()), float(best.sum())


def future_use(predictor: Predictor, traces: TraceSet, lookahead: int) -> dict[str, Any] | None:
    """Captured future use by the rollout's score and by the direct head's; None for a predictor without such a head.

    True use is counted over the ``lookahead`` + 1 steps that both look at.
    """
    direct = getattr(predictor, "use_sequence", None)
    if direct is None:
        return None
    discount = _discount()
    m = min(traces.top_k + OFFSET, traces.experts)
    sums = np.zeros((2, 2))
    for request in traces.requests:
        if not len(request.experts):
            continue
        activation = inputs_of(predictor, request, traces)
        heads = direct(activation, _STRIDE)
        if heads is None:
            return None
        after, probability = predictor.forecast_sequence(activation, lookahead, _STRIDE, SequenceContext.of(request))
        active = active_in(request, traces.experts)
        for index, step in enumerate(after):
            window = active[step + 1 : step + 2 + lookahead]
            if len(window) <= lookahead:
                break
            use = discounted_use(window, discount)
            sums[0] += captured(discounted_use(probability[index], discount), use, m)
            sums[1] += captured(heads[index], use, m)
    if not sums[:, 1].all():
        return None
    rollout, head = sums[:, 0] / sums[:, 1]
    return {"rollout": float(rollout), "direct": float(head), "discount": discount, "m": m, "steps": lookahead + 1}


def _discount() -> float:
    from seqmoe.predictor.training.losses import USE_DISCOUNT

    return float(USE_DISCOUNT)
