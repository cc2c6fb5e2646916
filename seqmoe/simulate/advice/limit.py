"""What holds a simulated cell back."""

from __future__ import annotations

from seqmoe.simulate.timeline.cell import Simulated
from seqmoe.simulate.timeline.costs import Costs

# A link that is busy for more than this share of a step can bring no more.
_SATURATED = 0.9
LIMITS = {
    "computation": "the GPU's own computation and its launches",
    "link": "the link: it is busy all the time, and what it brings is not enough",
    "misses": "misses: the link has time left, but what will be needed is not known early enough",
    "overhead": "its own bookkeeping between layers",
    "cpu": "the CPU, which computes the experts that the device does not hold",
}


def link_busy(costs: Costs, found: Simulated) -> float:
    """Share of a step in which the link moves experts, on demand or ahead."""
    loads = found.counts.loads if found.time.stall else 0.0
    return min(1.0, (loads + found.counts.sent) * costs.transfer() / found.time.total)


def limit_of(costs: Costs, found: Simulated) -> str:
    """One of `LIMITS`: what takes the largest part of a step, with waits for the link told apart by how busy it is."""
    time = found.time
    waits = {"link": time.stall, "cpu": time.cpu, "overhead": time.overhead}
    waits["computation"] = time.total - sum(waits.values())
    largest = max(waits, key=lambda name: waits[name])
    if largest == "link" and link_busy(costs, found) < _SATURATED:
        return "misses"
    return largest
