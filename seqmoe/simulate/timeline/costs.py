"""Seconds of a decode step's parts: a roofline over sustained rates, and the constants of the calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqmoe.simulate.timeline.settings import PAPER, Settings
from seqmoe.spec.calibration import Calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile
from seqmoe.spec.model import Decoding, Model
from seqmoe.spec.rates import Rates

# Where a layer is cut for the host to look at the routing, it launches what the graph no longer does: two graphs and
# the kernels between them.
SYNC_LAUNCHES = 3
# Slots are kept by two kernels in every layer: landing with loading, and creating tasks (paper, section 9.5).
MANAGEMENT_KERNELS = 2
# Dependent kernels of one pass of a predictor: Psi, the Linear before and after Mamba2, and in it both projections, the
# convolution, the update of the state and the gated norm.
PREDICTOR_KERNELS = 8
# From one GPU to the next: activations are a few KB, so the hand-over is two launches and a copy's latency.
_HOP_LAUNCHES = 3
# Share of a profile's memory that a model may fill; the rest is for graphs, activations and buffers.
USABLE = 0.9
# Declarations that have what the simulator needs.
_RATES, _DECODING = "suites/hardware/rtx4090.toml", "suites/models/qwen3-30b-a3b-fp8.toml"


@dataclass(frozen=True, slots=True)
class Costs:
    """One model on one machine. Constants of the calibration are read by their names."""

    model: Model
    hardware: HardwareProfile
    calibration: Calibration

    @property
    def rates(self) -> Rates:
        """The profile's; an `InputError` for a profile without."""
        if self.hardware.rates is None:
            raise InputError(f"hardware {self.hardware.name!r} has no [rates]; the simulator needs them: see {_RATES}")
        return self.hardware.rates

    @property
    def decoding(self) -> Decoding:
        """The model's; an `InputError` for a model without."""
        if self.model.decoding is None:
            raise InputError(f"model {self.model.name!r} has no [decoding]; the simulator needs it: see {_DECODING}")
        return self.model.decoding

    def constant(self, prefix: str, name: str, default: float) -> float:
        """The constant ``prefix.name``, or the default for a system without constants of its own."""
        full = f"{prefix}.{name}"
        known = {constant.name for constant in self.calibration.constant}
        return self.calibration.value(full) if full in known else default

    def attention(self, batch: int, context: int) -> float:
        """Seconds of one layer besides its routed experts, overhead included."""
        shared = self.decoding.token_bytes + batch * context * self.decoding.context_bytes
        seconds = shared / self.model.layers / (self.rates.memory_sustained * 1e9)
        return seconds + self.layer_overhead()

    def layer_overhead(self) -> float:
        """Seconds of a graph's layer that are not explained by memory, as full load of this model tells."""
        names = {constant.name for constant in self.calibration.constant}
        own = f"overhead.{self.model.name}"
        if own in names:
            return self.calibration.value(own)
        # A model that the paper does not measure: what its models need on average.
        others = [self.calibration.value(name) for name in sorted(names) if name.startswith("overhead.")]
        return sum(others) / len(others)

    def experts(self, count: float, batch: int = 1) -> float:
        """Seconds of computing ``count`` distinct experts of one layer on the accelerator."""
        read = count * self.model.expert_bytes / (self.rates.memory_sustained * 1e9)
        operations = 2 * batch * self.model.top_k * self.decoding.expert_weights
        return max(read, operations / (self.rates.compute_sustained * 1e12))

    def transfer(self, efficiency: float = 1.0) -> float:
        """Seconds of one expert over the link."""
        return self.model.expert_bytes / (self.hardware.link_sustained * 1e9 * efficiency)

    def unpinned(self) -> float:
        """Seconds of one expert copied from memory that is not pinned: the host copies it into a buffer first."""
        bandwidth = min(self.constant("pageable", "bandwidth", math.inf), self.hardware.link_sustained)
        return self.model.expert_bytes / (bandwidth * 1e9)

    def on_cpu(self, count: float, efficiency: float) -> float:
        """Seconds of computing ``count`` distinct experts of one layer on the CPU, which reads them once."""
        return count * self.model.expert_bytes / (self.rates.cpu_memory_sustained * 1e9 * efficiency)

    def predictor(self, settings: Settings = PAPER) -> float:
        """Seconds of all predictors in a step: each runs once for the next step, and then rolls out.

        What fits the cache is read from memory only once. A pass takes at least what its dependent kernels do, so more
        predictors, each of them smaller, cost more.
        """
        size = self.decoding.predictor_bytes / settings.predictors
        memory, cache = self.rates.memory_sustained * 1e9, self.rates.cache_bandwidth * 1e9
        kept = min(1.0, self.rates.cache_size * 2**20 / max(size, 1))
        least = PREDICTOR_KERNELS * self.rates.graph_kernel
        again = max(size * (kept / cache + (1 - kept) / memory), least)
        return settings.predictors * (max(size / memory, least) + settings.horizon * again)

    def launches(self) -> float:
        """Seconds in which the host launches a layer's kernels one by one: an eager layer takes no less."""
        return self.decoding.kernels * self.rates.dispatch

    def management(self) -> float:
        """Seconds of a layer's management kernels in a graph."""
        return MANAGEMENT_KERNELS * self.rates.graph_kernel

    def devices(self) -> int:
        """How many of these accelerators full load needs."""
        total = self.model.geometry.total_experts * self.model.expert_bytes + self.model.non_expert_bytes
        return math.ceil(total / (self.hardware.memory * 2**30 * USABLE))

    def hops(self) -> float:
        """Seconds between the stages of full load's pipeline in a step."""
        return (self.devices() - 1) * _HOP_LAUNCHES * self.rates.dispatch
