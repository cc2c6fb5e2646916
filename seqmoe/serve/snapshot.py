"""What the computing thread tells the others of its state, as values that do not change."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from seqmoe.core.slots import COMPUTE, EMPTY, FETCH, USED
from seqmoe.runtime.batching import BatchSession
from seqmoe.runtime.engine import Engine

_STATES = {"empty": EMPTY, "used": USED, "fetch": FETCH, "compute": COMPUTE}
_WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``decode`` and ``prefill`` are counts since the start, ``slots`` the number of expert slots in each state.

    ``tok_s`` is the throughput over the last seconds, ``expert_bytes`` the size of one transfer.
    """

    running: int = 0
    waiting: int = 0
    tok_s: float = 0.0
    expert_bytes: int = 0
    offloaded: bool = False
    slots: Mapping[str, int] = field(default_factory=dict)
    decode: Mapping[str, float] = field(default_factory=dict)
    prefill: Mapping[str, float] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float | None:
        """Share of the experts that decode steps needed and found resident; 1 at full load, None before the first."""
        if not self.offloaded:
            return 1.0
        needed = self.decode.get("needed", 0)
        return self.decode.get("hits", 0) / needed if needed else None

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes moved to the device by why, prompts and steps together, and those of them that were of no use."""
        names = {"on_demand": "on_demand_transfers", "prefetched": "prefetch_sent", "wasted": "prefetch_wasted"}
        both = (self.decode, self.prefill)
        return {
            kind: int(sum(counts.get(name, 0) for counts in both)) * self.expert_bytes for kind, name in names.items()
        }


def take_snapshot(engine: Engine, batch: BatchSession, running: int, waiting: int, tok_s: float) -> Snapshot:
    """The state between two steps; for the thread that computes, whose own the pipeline is."""
    offloaded = engine.offloaded
    if offloaded is None:
        slots = {"used": engine.geometry.total_experts}
    else:
        counts = np.bincount(offloaded.pipeline.pool()[1], minlength=len(_STATES))
        slots = {name: int(counts[state]) for name, state in _STATES.items()}
    size, partial = engine.geometry.expert_bytes, offloaded is not None
    return Snapshot(running, waiting, tok_s, size, partial, slots, dict(batch.decode), dict(batch.prefill))


class Throughput:
    """Tokens per second over a sliding window. Tokens are counted, not the chunks they are sent in."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque()

    def add(self, now: float, tokens: int) -> None:
        """So many tokens were finished by ``now``, in seconds."""
        self._steps.append((now, tokens))

    def rate(self, now: float) -> float:
        """Over the last ten seconds."""
        while self._steps and self._steps[0][0] <= now - _WINDOW_SECONDS:
            self._steps.popleft()
        return sum(tokens for _, tokens in self._steps) / _WINDOW_SECONDS
