"""The MoE of a layer through slots, one expert after another."""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from seqmoe.runtime.cuda.pool import SlotPool
from seqmoe.runtime.eager import gated


class ExpertsOneByOne:
    """Plain matrix products for one expert after another, whose slots the host reads: the eager mode of figure 4."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool

    def __call__(
        self, hidden_states: torch.Tensor, slot_ids: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """See `seqmoe.runtime.kernels.library.ExpertsFunction`."""
        out = torch.zeros_like(hidden_states, dtype=torch.float32)
        for token, slots in enumerate(slot_ids.tolist()):
            for choice, slot in enumerate(slots):
                out[token] += top_k_weights[token, choice].float() * self._one(hidden_states[token], slot).float()
        return out.to(hidden_states.dtype)

    def _one(self, state: torch.Tensor, slot: int) -> torch.Tensor:
        pool = self._pool
        gate_up, down = (pool.format.matrix(pool.parts, name, slot) for name in ("gate_up", "down"))
        biases = [pool.parts.get(f"{name}_bias") for name in ("gate_up", "down")]
        bias = [None if part is None else part[slot] for part in biases]
        inner = gated(linear(state[None].to(gate_up.dtype), gate_up, bias[0]), pool.format.shape)
        return linear(inner, down, bias[1])[0]
