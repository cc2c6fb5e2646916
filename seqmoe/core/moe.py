"""The MoE of a few tokens on the CPU in float32, reading expert weights through slots, one thread, no GIL.

Arrays are numpy arrays or CPU tensors, C-contiguous. T tokens, K experts per token, hidden size H, expert width I, S
slots.

``moe_swiglu(x [T, H], gate_up [S, 2I, H], down [S, H, I], slots int32 [T, K], weights [T, K], contribution [T, K, H])``
writes ``contribution[t, k] = weights[t, k] * down[s] @ (silu(gate[s] @ x[t]) * (up[s] @ x[t]))`` with ``s = slots[t,
k]``, and leaves rows with ``s < 0`` alone. ``reduce_contributions(contribution, out [T, H])`` sums over k in order.
Neither the slot an expert is in nor the grouping of a layer into several calls changes a bit of the result.

Shapes that do not fit, and slots outside the pool, raise ``ValueError``; other types or layouts ``TypeError``.
"""

from __future__ import annotations

from seqmoe.core._native import moe_swiglu, reduce_contributions

__all__ = ["moe_swiglu", "reduce_contributions"]
