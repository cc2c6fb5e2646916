"""Small random routing, and a predictor whose forecasts are noise: policies are told apart by their rules alone."""

from __future__ import annotations

import numpy as np

from seqmoe.spec.trace import DECODE, PREFILL, RequestTrace, TraceSet

LAYERS, EXPERTS, TOP_K = 3, 6, 2
RANGES = ((0, 1), (1, 3))


def request(rng, steps=30, prefill=4) -> RequestTrace:
    """Routing in which some experts are favoured."""
    favour = rng.gumbel(size=(LAYERS, EXPERTS))
    order = np.argsort(-(favour + rng.gumbel(size=(steps, LAYERS, EXPERTS))), axis=-1)
    phase = np.where(np.arange(steps) < prefill, PREFILL, DECODE).astype(np.uint8)
    return RequestTrace(order[..., :TOP_K].astype(np.int16), phase, prompt_length=prefill)


def traces(seed=0, count=3, steps=30, prefill=4) -> TraceSet:
    """Several requests of different lengths."""
    rng = np.random.default_rng(seed)
    return TraceSet(
        "tiny", LAYERS, EXPERTS, TOP_K, tuple(request(rng, steps + 5 * i, prefill) for i in range(count)),
        expert_bytes=1000,
    )  # fmt: skip


class Noise:
    """Forecasts that depend on nothing but the request's length."""

    layers, experts, ranges, psi = LAYERS, EXPERTS, RANGES, True

    def forecast_sequence(self, activation, lookahead, stride=1, context=None):
        """See `seqmoe.predictor.base.Predictor`."""
        rng = np.random.default_rng(len(activation))
        shape = (len(activation), lookahead + 1, LAYERS, EXPERTS)
        return np.arange(len(activation)), rng.uniform(0.02, 0.9, shape).astype(np.float32)

    def use_sequence(self, activation, stride=1):
        """The direct forecast of future use."""
        rng = np.random.default_rng(1000 + len(activation))
        return rng.uniform(0.3, 0.9, (len(activation), LAYERS, EXPERTS)).astype(np.float32)


class Knowing(Noise):
    """Forecasts that come true."""

    def forecast_sequence(self, activation, lookahead, stride=1, context=None):
        """The next steps themselves; nothing after the end."""
        active = (activation > 0).astype(np.float32)
        steps = len(active)
        padded = np.concatenate([active, np.zeros((lookahead + 2, LAYERS, EXPERTS), dtype=np.float32)])
        rows = np.stack([padded[1 + ahead : 1 + ahead + steps] for ahead in range(lookahead + 1)], axis=1)
        return np.arange(steps), rows
