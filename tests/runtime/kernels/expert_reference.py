"""Experts in float64 from the definition of their format, and random weights in it."""

from __future__ import annotations

import torch

from seqmoe.runtime.kernels.weights import ExpertWeights, part_shapes

# OCP Microscaling Formats (MX) Specification 1.0, table 5.
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1_VALUES = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float64)


def random_weights(format, slots, hidden, width, bias=False, activation="swiglu", dtype=torch.bfloat16):
    """Weights whose products are about 1; every byte occurs that the format allows."""
    parts = {}
    for name, shape in part_shapes(format, hidden, width, bias).items():
        shape = (slots, *shape)
        if name.endswith("bias") or format == "dense":
            parts[name] = (torch.randn(shape) * 0.3).to(dtype)
        elif format == "fp8" and name.endswith("scale"):
            parts[name] = torch.rand(shape) * 0.01 + 0.001
        elif format == "fp8":
            parts[name] = random_e4m3(shape)
        elif name.endswith("scale"):
            parts[name] = torch.randint(118, 127, shape, dtype=torch.uint8)
        else:
            parts[name] = torch.randint(0, 256, shape, dtype=torch.uint8)
    return ExpertWeights(format, hidden, width, **parts, activation=activation, limit=2.0, alpha=1.702)


def random_e4m3(shape):
    """All finite values, subnormals included, each equally often."""
    byte = torch.randint(0, 127, shape, dtype=torch.uint8) + 128 * torch.randint(0, 2, shape, dtype=torch.uint8)
    return byte.view(torch.float8_e4m3fn)


def values(weights, name):
    """A matrix of all slots, float64."""
    matrix, scale = getattr(weights, name), getattr(weights, f"{name}_scale")
    if weights.format == "dense":
        return matrix.double()
    if weights.format == "mxfp4":
        halves = torch.stack((matrix & 15, matrix >> 4), dim=-1).flatten(-2)
        factors = torch.pow(2.0, scale.view(torch.uint8).double() - 127)
        return E2M1_VALUES[halves.int()] * factors.repeat_interleave(32, dim=-1)
    parts = [matrix] if name == "down" else matrix.chunk(2, dim=1)
    factors = [scale] if name == "down" else scale.chunk(2, dim=1)
    return torch.cat([blocks(part.double(), factor.double()) for part, factor in zip(parts, factors, strict=True)], 1)


def blocks(matrix, scale):
    """Each 128 x 128 block times its scale."""
    factors = scale.repeat_interleave(128, dim=1).repeat_interleave(128, dim=2)
    return matrix * factors[:, : matrix.shape[1], : matrix.shape[2]]


def reference(weights, hidden_states, slot_ids, top_k_weights):
    """float64 [tokens, hidden]."""
    gate_up, down = values(weights, "gate_up"), values(weights, "down")
    out = torch.zeros(hidden_states.shape, dtype=torch.float64)
    for token, slots in enumerate(slot_ids.tolist()):
        for choice, slot in enumerate(slots):
            if slot < 0:
                continue
            inner = gate_up[slot] @ hidden_states[token].double()
            if weights.gate_up_bias is not None:
                inner += weights.gate_up_bias[slot].double()
            contribution = down[slot] @ activation(weights, *inner.chunk(2))
            if weights.down_bias is not None:
                contribution += weights.down_bias[slot].double()
            out[token] += top_k_weights[token, choice].double() * contribution
    return out


def activation(weights, gate, up):
    """The three of `seqmoe.adapters.base.ExpertFormat`, by their definitions."""
    if weights.activation == "swiglu":
        return gate * torch.sigmoid(gate) * up
    gate, up = gate.clamp(max=weights.limit), up.clamp(-weights.limit, weights.limit)
    if weights.activation == "swiglu_clamped":
        return gate * torch.sigmoid(gate) * up
    return (up + 1) * gate * torch.sigmoid(weights.alpha * gate)
