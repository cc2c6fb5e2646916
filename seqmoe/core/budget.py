"""The transfer budget: prefetches per layer that the link manages, learnt while it runs (paper, Algorithm 1, 1-3).

In print the average moves by ``+ alpha * B_cur``. ``B_cur`` is what is *left* of the layer's budget, so the sign must
be negative for the average to approach the transfers really made. When several layers pass during one transfer, the
rest is taken per layer and weighs as much as that many single updates; otherwise 0.4 and 0.6 transfers per layer would
both converge to 1. Idle time moves nothing. ``current`` may go below 0; the capacity of `seqmoe.core.schedule` counts
it as 1.
"""

from __future__ import annotations

from seqmoe.core._native import TransferBudget

__all__ = ["TransferBudget"]
