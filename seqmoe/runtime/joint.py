"""Forwards of several requests that meet at each layer's experts.

Everything but the experts runs for each request by itself, exactly as for a request alone: matrix products of another
height, or attention over padding, would round elsewhere. At the experts, where an offloaded model spends its time and
its link, the requests wait for each other: one event of the placement, one kernel, in which every row has the same bits
in any batch. So each request's logits are bit-equal to those it has alone, for any family and any mix of lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from greenlet import getcurrent, greenlet

from seqmoe.runtime.offload import Arrival, Router

Answer = TypeVar("Answer")


def run_together(router: Router, forwards: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Run one forward of the router's model for each request; their results, in order.

    Each is a coroutine that stops where its layer's experts are computed. Raises what one of them raised, when all
    others have been unwound.
    """
    hub = getcurrent()
    tasks = [greenlet(forward, hub) for forward in forwards]

    def meet(arrival: Arrival) -> torch.Tensor:
        computed: torch.Tensor = hub.switch(arrival)
        return computed

    router.meet = meet
    try:
        found = [task.switch() for task in tasks]
        while not tasks[0].dead:
            computed = router.compute_together(found)
            found = [task.switch(row) for task, row in zip(tasks, computed, strict=True)]
        return found
    finally:
        router.meet = None
        for task in tasks:
            if not task.dead and task:
                task.throw()
