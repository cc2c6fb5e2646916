"""The MoE of a few tokens on the CPU, reading expert weights through slots, one thread, no GIL.

Arrays are numpy arrays or CPU tensors, C-contiguous. T tokens, K experts per token, hidden size H, expert width I, S
slots.

``moe_experts(x [T, H], gate_up [S, 2I, H], down [S, H, I], slots int32 [T, K], weights [T, K], contribution [T, K, H],
activation="swiglu", limit=0.0, alpha=0.0, gate_up_bias=None [S, 2I], down_bias=None [S, H], instructions="")`` writes
``contribution[t, k] = weights[t, k] * (down[s] @ activation(gate_up[s] @ x[t] + gate_up_bias[s]) + down_bias[s])`` with
``s = slots[t, k]``, and leaves rows with ``s < 0`` alone.

- Expert weights and biases are float32, or bfloat16 (a uint16 array holds its bits); everything else is float32, and
  so are all sums: bfloat16 weights are widened, which is exact.
- ``activation``, of the first I rows (gate) and the last I rows (up): ``swiglu`` is ``silu(gate) * up``;
  ``swiglu_clamped`` (DeepSeek-V4) the same after ``gate = min(gate, limit)`` and ``up = clamp(up, -limit, limit)``;
  ``swiglu_oai`` (GPT-OSS) is ``(up + 1) * gate * sigmoid(alpha * gate)`` after the same clamps.
- Tokens that share a slot read its weights once. Every row [t, k] is summed in one fixed order: neither the slot an
  expert is in, nor the batch, nor the grouping of a layer into several calls changes a bit of the result.
- ``instructions`` forces one of ``instruction_sets()``, which lists what this machine can run, the fastest first.
  avx512 and avx2 agree bit for bit; portable rounds between multiplication and addition where the others do not.

``reduce_contributions(contribution, out [T, H])`` sums over k in order.

Shapes that do not fit, slots outside the pool and unknown names raise ``ValueError``; other types or layouts
``TypeError``.
"""

from __future__ import annotations

from seqmoe.core._native import instruction_sets, moe_experts, reduce_contributions

__all__ = ["instruction_sets", "moe_experts", "reduce_contributions"]
