"""A decode step's time from its counts: what computes, what waits, and what throughput follows."""

from __future__ import annotations

from dataclasses import dataclass

from seqmoe.simulate.timeline.costs import SYNC_LAUNCHES, Costs
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.queue import load_stall
from seqmoe.simulate.timeline.settings import PAPER, Settings
from seqmoe.simulate.timeline.split import prices, shares
from seqmoe.simulate.timeline.systems import SimulatedSystem


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one decode step. ``stall`` waits for the link, ``cpu`` for experts that the CPU computes."""

    computation: float
    predictor: float
    management: float
    stall: float
    cpu: float
    overhead: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.computation + self.predictor + self.management + self.stall + self.cpu + self.overhead


def layer_time(costs: Costs, system: SimulatedSystem, batch: int, context: int, experts: float) -> float:
    """Seconds in which one layer computes ``experts`` distinct experts on the accelerator, without any wait."""
    seconds = costs.attention(batch, context) + costs.experts(experts, batch)
    if system.execution == "sync":
        seconds += costs.rates.host_sync + SYNC_LAUNCHES * costs.rates.dispatch
    if system.execution == "eager":
        seconds = max(seconds, costs.launches())
        if system.misses == "load":  # the host must read the routing to know what to load
            seconds += costs.rates.host_sync
    return seconds


def link_per_layer(
    costs: Costs, system: SimulatedSystem, batch: int, context: int, experts: float, settings: Settings = PAPER
) -> float:
    """Experts that the link moves while a layer computes: the unit clock's rate of this machine.

    Loads on demand go first on the one channel, and the clock of the event loop stands still meanwhile; so what is
    left for prefetches is the time of computation.
    """
    seconds = layer_time(costs, system, batch, context, experts)
    if system.managed:
        seconds += costs.management()
    if system.predictor:
        seconds += costs.predictor(settings) / costs.model.layers
    return seconds / costs.transfer()


def step_time(
    costs: Costs,
    system: SimulatedSystem,
    counts: StepCounts,
    batch: int,
    context: int,
    settings: Settings = PAPER,
) -> StepTime:
    """The step of a batch whose requests have ``context`` tokens each."""
    layers = costs.model.layers
    on_device = counts.needed if system.misses != "cpu" else counts.hits
    computation = layers * layer_time(costs, system, batch, context, on_device / layers)
    if system.name == "full":
        computation += costs.hops()
    stall = cpu = 0.0
    if system.misses == "load":
        efficiency = costs.constant(system.constants, "link_efficiency", 1.0)
        load = costs.unpinned() if system.policy == "nothing" else costs.transfer(efficiency)
        stall = load_stall(counts, layers, computation, load, costs.transfer())
    elif system.misses == "split":
        efficiency = costs.constant(system.constants, "link_efficiency", 1.0)
        found = shares(prices(costs, efficiency, counts, batch, computation), counts, layers)
        stall, cpu = layers * found.stall + counts.late / 2 * costs.transfer(), layers * found.cpu
    elif system.misses == "hidden":
        stall = max(0.0, counts.loads * costs.transfer() - computation)
    elif system.misses == "cpu":
        efficiency = costs.constant(system.constants, "cpu_efficiency", 1.0)
        cpu = costs.on_cpu(counts.misses, efficiency)
        if system.policy != "layers":  # the device computes its share of every layer meanwhile
            cpu = max(0.0, cpu - layers * costs.experts(counts.hits / layers, batch))
    return StepTime(
        computation=computation,
        predictor=costs.predictor(settings) if system.predictor else 0.0,
        management=layers * costs.management() if system.managed else 0.0,
        stall=stall,
        cpu=cpu,
        overhead=layers * costs.constant(system.constants, "layer_overhead", 0.0),
    )
