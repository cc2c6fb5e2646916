"""Misses shared between CPU and link: an expert that is not resident is computed where it lies, or loaded.

The split is the runtime's (`seqmoe.spec.pace.MissPrices`); what was computed on the CPU crosses the link in the
background, after the prefetches' own competition for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scipy.stats import binom

from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.queue import wait
from seqmoe.spec.miss_prices import KERNEL, miss_prices
from seqmoe.spec.pace import MissPrices

# A link that has no time left for prefetches still lands one now and then, since all it moves waits in one queue.
_LEAST_LINK = 0.05
# Rarer events are left out.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Shares:
    """Per layer, means: seconds of waiting for ``loads`` on the link alone, and where the CPU takes part.

    ``computed`` are the experts that the CPU computes.
    """

    stall: float
    cpu: float
    computed: float


def prices(costs: Costs, efficiency: float, counts: StepCounts, batch: int, computation: float) -> MissPrices:
    """The machine's; ``efficiency`` is that of loads on demand, ``computation`` a step's time without any wait."""
    layers, hits = costs.model.layers, counts.hits / costs.model.layers
    machine = miss_prices(costs.hardware, costs.model.expert_bytes, costs.calibration.value(KERNEL), efficiency)
    first = wait(counts, layers, computation, costs.transfer())
    return replace(machine, wait=first, hit=costs.experts(hits, batch) / hits if hits else 0.0)


def shares(found: MissPrices, counts: StepCounts, layers: int) -> Shares:
    """Means over a layer's number of misses, which fall on the experts that it needs independently.

    What is late is under way already, and waited for.
    """
    needed = max(1, round(counts.needed / layers))
    chance = min(1.0, counts.loads / counts.needed)
    stall = cpu = computed = 0.0
    for misses in range(1, needed + 1):
        likely = float(binom.pmf(misses, needed, chance))
        if likely < _LEAST:
            continue
        on_cpu = found.cheapest(misses, needed - misses)
        cost = found.cost(misses, on_cpu, needed - misses)
        computed += likely * on_cpu
        stall, cpu = (stall, cpu + likely * cost) if on_cpu else (stall + likely * cost, cpu)
    return Shares(stall, cpu, computed)


def background_link(link: float, found: Shares, contended: float) -> float:
    """Experts per layer that the link has left for prefetches, of ``link``: what the CPU computed crosses it as well.

    It goes on while a layer waits for the CPU, at ``contended`` seconds an expert.
    """
    return max(_LEAST_LINK * link, link + found.cpu / contended - found.computed)
