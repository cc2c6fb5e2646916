"""Small random traces, and slow but plain ways to count, for the predictors' tests."""

from __future__ import annotations

import numpy as np

from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet


def random_request(rng, steps, layers=4, experts=8, k=2, prefill=0, missing=0.0, early=None, token_ids=None):
    """Experts at random, weights too; ``missing`` is the share of layers that a prefill step lacks."""
    chosen = rng.permuted(np.tile(np.arange(experts), (steps, layers, 1)), axis=-1)[..., :k].astype(np.int16)
    weights = rng.dirichlet(np.ones(k), (steps, layers)).astype(np.float32)
    chosen[rng.random((steps, layers)) < missing] = MISSING
    phase = np.where(np.arange(steps) < prefill, PREFILL, DECODE).astype(np.uint8)
    return RequestTrace(chosen, phase, weights, token_ids=token_ids, early=early)


def trace_set(*requests, experts=8, router="softmax_renormalised"):
    layers, k = requests[0].experts.shape[1:]
    return TraceSet("random", layers, experts, k, tuple(requests), router=router)


def sample_traces(seed=0, missing=0.1):
    """Five requests of four layers, eight experts, top-2, some of them with layers that are missing."""
    rng = np.random.default_rng(seed)
    lengths = (30, 12, 3, 1, 25)
    return trace_set(*(random_request(rng, steps, prefill=steps // 4, missing=missing) for steps in lengths))


class Fixed:
    """Says what it is given: ``table`` [steps, rows, layers, experts] for every request of that many steps."""

    def __init__(self, table, stride_seen=None):
        self.table = table
        self.layers, self.experts = table.shape[2:]
        self.ranges = ((0, self.layers),)
        self.asked = []

    def reset(self):
        """Nothing to forget."""

    def forecast_sequence(self, activation, lookahead, stride=1, context=None):
        self.asked.append((len(activation), lookahead, stride))
        chosen = np.arange(0, len(activation), stride)
        return chosen, self.table[chosen, : lookahead + 1]


def brute_force(table, request, k, lookahead, counted):
    """Activations and hits at k..k+4: of the next step, and of each step of the whole rollouts; by sorting."""
    rows = np.zeros((2, lookahead + 1, 6), dtype=int)
    steps, layers, _ = request.experts.shape
    for after in range(steps - 1):
        whole = after + lookahead + 1 < steps and all(counted[after + 1 : after + lookahead + 2])
        for ahead in range(lookahead + 1):
            target = after + 1 + ahead
            if target >= steps or not counted[target]:
                continue
            for layer in range(layers):
                chance = table[after, ahead, layer].tolist()
                order = sorted(range(len(chance)), key=lambda expert: (-chance[expert], expert))
                for expert in request.experts[target, layer].tolist():
                    if expert == MISSING:
                        continue
                    counts = [1, *(expert in order[: k + offset] for offset in range(5))]
                    if ahead == 0:
                        rows[0, 0] += counts
                    if whole:
                        rows[1, ahead] += counts
    return rows[0, 0], rows[1]
