"""Random experts and routing for tests of the CPU kernel, with the answer in float64."""

from __future__ import annotations

import numpy as np

from seqmoe.core.moe import moe_experts

ACTIVATIONS = {"swiglu": (0.0, 0.0), "swiglu_clamped": (0.7, 0.0), "swiglu_oai": (0.9, 1.702)}


def to_bfloat16(array):
    """The bits of the nearest bfloat16."""
    return ((np.ascontiguousarray(array).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def widened(array):
    """In float64, from float32 or from the bits of bfloat16."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


class MoeCase:
    """T tokens routed to K of E experts; ``index`` [T, K] is the slot of each while the pool holds them in order."""

    def __init__(
        self, seed, tokens=3, choices=4, experts=7, hidden=40, width=24, bfloat16=False, activation="swiglu", bias=False
    ):
        rng = np.random.default_rng(seed)

        def normal(*shape):
            return rng.standard_normal(shape, dtype=np.float32)

        self.experts = experts
        self.activation = activation
        self.limit, self.alpha = ACTIVATIONS[activation]
        self.x = normal(tokens, hidden)
        self.gate_up = normal(experts, 2 * width, hidden) / hidden**0.5
        self.down = normal(experts, hidden, width) / width**0.5
        self.gate_up_bias = normal(experts, 2 * width) if bias else None
        self.down_bias = normal(experts, hidden) if bias else None
        self.index = np.stack([rng.permutation(experts)[:choices] for _ in range(tokens)]).astype(np.int32)
        self.weights = rng.random((tokens, choices), dtype=np.float32)
        if bfloat16:
            for name in ("gate_up", "down", "gate_up_bias", "down_bias"):
                if getattr(self, name) is not None:
                    setattr(self, name, to_bfloat16(getattr(self, name)))

    def poisoned(self):
        return np.full((*self.index.shape, self.x.shape[1]), np.nan, dtype=np.float32)

    def run(self, into=None, instructions="", **changes):
        """The contribution [T, K, H] through the kernel, with some of its arguments replaced."""
        into = self.poisoned() if into is None else into
        names = ("x", "gate_up", "down", "index", "weights", "gate_up_bias", "down_bias")
        given = {name: getattr(self, name) for name in names} | changes
        x, gate_up, down, index, weights, gate_up_bias, down_bias = given.values()
        moe_experts(
            x, gate_up, down, index, weights, into, self.activation, self.limit, self.alpha,
            gate_up_bias, down_bias, instructions,
        )  # fmt: skip
        return into

    def reference(self):
        """In float64, written from the definitions in Transformers' GptOssExperts and DeepseekV4Experts."""
        x, gate_up, down = self.x.astype(np.float64), widened(self.gate_up), widened(self.down)
        out = np.empty(self.poisoned().shape)
        for token, choice in np.ndindex(*self.index.shape):
            expert = self.index[token, choice]
            product = gate_up[expert] @ x[token]
            if self.gate_up_bias is not None:
                product += widened(self.gate_up_bias[expert])
            result = down[expert] @ self._activated(*np.split(product, 2))
            if self.down_bias is not None:
                result += widened(self.down_bias[expert])
            out[token, choice] = self.weights[token, choice] * result
        return out

    def _activated(self, gate, up):
        if self.activation == "swiglu":
            return gate / (1 + np.exp(-gate)) * up
        gate, up = np.minimum(gate, self.limit), np.clip(up, -self.limit, self.limit)
        if self.activation == "swiglu_clamped":
            return gate / (1 + np.exp(-gate)) * up
        return (up + 1) * gate / (1 + np.exp(-self.alpha * gate))
