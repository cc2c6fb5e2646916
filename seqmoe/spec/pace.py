"""How fast a machine decodes with one model: layers, transfers, and what it can do about experts that are missing."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class MissPrices:
    """Seconds: of an expert over the idle and the contended ``link``, on the ``cpu`` beside it, and of a hand-over.

    ``hit`` is the device's computing of an expert that it holds, ``wait`` what a layer's first load waits for the link.
    See `seqmoe.spec.miss_prices`.
    """

    link: float
    contended: float
    cpu: float
    hand_over: float
    hit: float
    wait: float = 0.0

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ValueError("prices of misses must not be negative")

    def cost(self, misses: int, computed: int, hits: float) -> float:
        """Seconds that a layer waits with so many of its misses computed on the CPU and the others loaded meanwhile."""
        if not computed:
            return misses * self.link + (self.wait if misses else 0.0)
        loads = misses - computed
        return max(self.on_cpu(computed, hits), loads * self.contended + (self.wait if loads else 0.0))

    def on_cpu(self, computed: int, hits: float) -> float:
        """Seconds that a layer waits for the CPU alone, while the device computes its ``hits``."""
        return max(0.0, self.hand_over + computed * self.cpu - hits * self.hit) if computed else 0.0

    def cheapest(self, misses: int, hits: float) -> int:
        """How many of ``misses`` are best computed on the CPU; fewer where as many cost the same."""
        return min(range(misses + 1), key=lambda computed: self.cost(misses, computed, hits))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a GPU computes a layer and its link moves an expert of one model, in seconds."""

    layer_seconds: float
    expert_seconds: float
    misses: MissPrices | None = None

    def __post_init__(self) -> None:
        if min(self.layer_seconds, self.expert_seconds) <= 0:
            raise ValueError("layer_seconds and expert_seconds must be positive")

    @property
    def overlap_ratio(self) -> float:
        """Experts that the link moves while a layer computes at full load."""
        return self.layer_seconds / self.expert_seconds
