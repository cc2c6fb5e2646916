"""What fits: the largest residency that an accelerator's memory holds, and whether the host holds all experts."""

from __future__ import annotations

from dataclasses import dataclass

from seqmoe.simulate.timeline.costs import USABLE, Costs
from seqmoe.simulate.timeline.prefill import PROMPT_TOKENS
from seqmoe.simulate.timeline.systems import SimulatedSystem

# What the system and its programs leave of a host's memory.
_HOST_USABLE = 0.9


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of accelerator memory: what is ``usable``, and what is taken beside the experts.

    ``caches`` are keys and values of all requests, ``reserve`` is for graphs, activations and buffers.
    """

    memory: float
    reserve: float
    others: float
    caches: float
    predictor: float

    @property
    def for_experts(self) -> float:
        """Bytes that are left for experts; negative where not even the rest fits."""
        return self.memory - self.reserve - self.others - self.caches - self.predictor


def device_memory(costs: Costs, system: SimulatedSystem, batch: int, decode_tokens: int) -> DeviceMemory:
    """The accelerator's memory with ``batch`` requests of a prompt as in the paper's TTFT and their output."""
    model, decoding = costs.model, costs.decoding
    memory = costs.hardware.memory * 2**30
    return DeviceMemory(
        memory=memory,
        reserve=(1 - USABLE) * memory,
        others=model.non_expert_bytes,
        caches=batch * (PROMPT_TOKENS + decode_tokens) * decoding.cached_bytes,
        predictor=decoding.predictor_bytes if system.predictor else 0,
    )


def largest_residency(costs: Costs, system: SimulatedSystem, batch: int, decode_tokens: int) -> float:
    """The share of all experts that fits, at most 1; 0 where it could not hold what one step of the batch needs."""
    geometry = costs.model.geometry
    room = int(device_memory(costs, system, batch, decode_tokens).for_experts // costs.model.expert_bytes)
    if room < geometry.least_slots(batch):
        return 0.0
    # Rounded down to a tenth of a percent, so that what is printed fits as well.
    return min(1.0, int(1000 * room / geometry.total_experts) / 1000)


def host_bytes(costs: Costs, system: SimulatedSystem, residency: float) -> float:
    """Bytes of experts in the host's memory: all of them in a pool, or those that the CPU computes."""
    every = costs.model.geometry.total_experts * costs.model.expert_bytes
    if system.policy == "all":
        return 0.0
    return every * (1 - residency) if system.policy == "layers" else every


def fits_host(needed: float, ram: float | None) -> bool | None:
    """Whether ``ram`` GB (1e9 bytes) hold it beside the system; None where it is not known how much there is."""
    return None if ram is None else needed <= _HOST_USABLE * ram * 1e9
