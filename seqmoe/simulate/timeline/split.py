"""Misses shared between CPU and link: an expert that is not resident is computed where it lies, or loaded.

While the CPU computes a layer's missing experts the device computes those that it holds, and what was computed on the
CPU crosses the link in the background, after the prefetches' own competition for it. Both read the host's memory, so
the split is chosen with what each has left beside the other (the idea of Fiddler, KTransformers and FreeToken's hybrid
strategy; that an idle link's rate misleads is in github.com/FlashML-org/FreeToken/pull/38).
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import binom

from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.queue import wait

# The kernel is KTransformers': the share of the host's bandwidth that experts on the paper's hosts reached.
KERNEL = "ktransformers"
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


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds: of an expert over the idle and the contended ``link``, on the ``cpu`` beside it, and of a hand-over.

    ``wait`` is what a layer's first load waits for the link, ``hidden`` the time in which the device computes what it
    holds of the layer.
    """

    link: float
    contended: float
    cpu: float
    hand_over: float
    wait: float
    hidden: float

    def cheapest(self, misses: int) -> tuple[float, int]:
        """What ``misses`` of one layer cost at best, and how many of them are computed on the CPU then."""
        return min((self.cost(misses, computed), computed) for computed in range(misses + 1))

    def cost(self, misses: int, computed: int) -> float:
        """Seconds that a layer waits with so many computed on the CPU and the others loaded meanwhile."""
        if not computed:
            return misses * self.link + (self.wait if misses else 0.0)
        waits = max(0.0, self.hand_over + computed * self.cpu - self.hidden)
        loads = misses - computed
        return max(waits, loads * self.contended + (self.wait if loads else 0.0))


def prices(costs: Costs, efficiency: float, counts: StepCounts, batch: int, computation: float) -> Prices:
    """The machine's; ``efficiency`` is that of loads on demand, ``computation`` a step's time without any wait."""
    layers = costs.model.layers
    rates, hardware = costs.rates, costs.hardware
    contended = hardware.link_contended or hardware.link_sustained
    left = max(rates.cpu_memory_sustained - contended, 0.1 * rates.cpu_memory_sustained)
    kernel = costs.constant(KERNEL, "cpu_efficiency", 1.0)
    return Prices(
        link=costs.transfer(efficiency),
        contended=costs.model.expert_bytes / (contended * efficiency * 1e9),
        cpu=costs.model.expert_bytes / (left * kernel * 1e9),
        hand_over=rates.host_sync,
        wait=wait(counts, layers, computation, costs.transfer()),
        hidden=costs.experts(counts.hits / layers, batch),
    )


def shares(found: Prices, counts: StepCounts, layers: int) -> Shares:
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
        cost, on_cpu = found.cheapest(misses)
        computed += likely * on_cpu
        stall, cpu = (stall, cpu + likely * cost) if on_cpu else (stall + likely * cost, cpu)
    return Shares(stall, cpu, computed)


def background_link(link: float, found: Shares, contended: float) -> float:
    """Experts per layer that the link has left for prefetches, of ``link``: what the CPU computed crosses it as well.

    It goes on while a layer waits for the CPU, at ``contended`` seconds an expert.
    """
    return max(_LEAST_LINK * link, link + found.cpu / contended - found.computed)
