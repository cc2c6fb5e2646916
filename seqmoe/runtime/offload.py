"""The one function between routing and experts, registered with Transformers' experts interface as ``seqmoe``."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from seqmoe.adapters.base import ExpertsModule
from seqmoe.core.budget import TransferBudget
from seqmoe.core.moe import moe_experts, reduce_contributions
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable
from seqmoe.predictor.base import Predictor
from seqmoe.runtime.emulation import LayerPacer
from seqmoe.runtime.forecasting import ForecastDriver
from seqmoe.runtime.host_pool import HostPool
from seqmoe.runtime.placement import ExpertPool
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec

NAME = "seqmoe"
_EXACT = 2**23  # a request adds fewer positions than this again before float32 runs out of integers


class Placement(Protocol):
    """Answers, layer by layer, in which pool and at which id the needed experts are."""

    pool: ExpertPool
    pipeline: OffloadPipeline | None
    # Whether retention scores change when an expert is needed, and the layers where `routed` acts.
    scores_on_access: bool
    trigger_layers: frozenset[int]

    def begin_request(self) -> None:
        """A new prompt starts: history of the last one must not leak into forecasts."""
        ...

    def begin_step(self) -> int:
        """A decode step starts; the position of its layer 0."""
        ...

    def needed(self, layer: int, experts: NDArray[np.int32]) -> None:
        """Distinct experts are needed: retention scores that depend on use."""
        ...

    def groups(self, layer: int, needed: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """Split the distinct experts of an event into groups that fit the pool together."""
        ...

    def enter(self, layer: int, group: NDArray[np.int32]) -> NDArray[np.int32]:
        """Make the experts of a group resident; their ids in the pool, valid until the next group enters."""
        ...

    def routed(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Note the routing of the newest token of each request, [batch, k]."""
        ...

    def leave(self, layer: int) -> None:
        """The event's experts are about to be computed: from here on the cache may let them go."""
        ...

    def take_stall(self) -> float:
        """Seconds that inference has waited for experts since the last call."""
        ...


class FullLoad:
    """Every expert is resident: ids are expert keys of the host pool itself."""

    def __init__(self, host: ExpertPool, geometry: Geometry) -> None:
        self.pool = host
        self.pipeline = None
        self.scores_on_access = False
        self.trigger_layers: frozenset[int] = frozenset()
        self._experts = geometry.experts

    def begin_request(self) -> None:
        """Nothing depends on history."""

    def begin_step(self) -> int:
        """Nothing depends on time."""
        return 0

    def needed(self, layer: int, experts: NDArray[np.int32]) -> None:
        """Nothing is ever let go."""

    def groups(self, layer: int, needed: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """All at once."""
        return [needed]

    def enter(self, layer: int, group: NDArray[np.int32]) -> NDArray[np.int32]:
        """Expert keys."""
        return group + np.int32(layer * self._experts)

    def routed(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Nothing depends on history."""

    def leave(self, layer: int) -> None:
        """Nothing is ever let go."""

    def take_stall(self) -> float:
        """Nothing is waited for."""
        return 0.0


class Offloaded:
    """A slot pool of ``geometry.slots(residency)`` experts, filled by misses and prefetches over a link."""

    def __init__(
        self,
        host: HostPool,
        geometry: Geometry,
        spec: SystemSpec,
        residency: float,
        predictor: Predictor | None,
        link_seconds_per_expert: float,
        experts_per_layer: float,
    ) -> None:
        slots = geometry.slots(residency)
        self.pool = ExpertPool.empty(slots, host.format)
        self.link = host.link_to(self.pool, link_seconds_per_expert)
        self.table = SlotTable(geometry.layers, geometry.experts, slots, fetch_limit=slots - geometry.top_k)
        budget = TransferBudget(experts_per_layer)
        self.pipeline = OffloadPipeline(self.table, self.link, budget, evict_after_layer=spec.retention == "none")
        self._layers = geometry.layers
        self._slots = slots
        self.scores_on_access = spec.retention == "lru"
        self._step = -1
        self._stalled = 0.0
        self._recency_base = 0
        self._driver = (
            ForecastDriver(spec, geometry, predictor, self.table, self.pipeline) if predictor is not None else None
        )
        self.trigger_layers = frozenset(self._driver.trigger_layers if self._driver is not None else ())

    def begin_request(self) -> None:
        """Reset the predictor; the pool stays warm. Recency starts over while float32 still counts it exactly."""
        if self._driver is not None:
            self._driver.begin_request()
        position = (self._step + 1) * self._layers
        if self.scores_on_access and position - self._recency_base > _EXACT:
            self.table.score[:] -= position - self._recency_base
            self._recency_base = position

    def groups(self, layer: int, needed: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """Start the event; a prompt may need more experts of one layer than the pool has slots."""
        if layer == 0:
            self.begin_step()
        return [needed[start : start + self._slots] for start in range(0, len(needed), self._slots)]

    def enter(self, layer: int, group: NDArray[np.int32]) -> NDArray[np.int32]:
        """Land finished prefetches and load misses (steps 1 and 2 of the pipeline; paper, section 7.2)."""
        if self.scores_on_access:
            self.needed(layer, group)
        return self.pipeline.enter(layer, self._step * self._layers + layer, group)

    def begin_step(self) -> int:
        """A step, or a prompt, starts."""
        self._step += 1
        return self._step * self._layers

    def needed(self, layer: int, experts: NDArray[np.int32]) -> None:
        """Recency is the score of LRU."""
        self.table.score[layer, experts] = self._step * self._layers + layer - self._recency_base

    def routed(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Feed the predictor (steps 3 to 5)."""
        if self._driver is not None:
            self._driver.routed(self._step, layer, experts, weights)

    def leave(self, layer: int) -> None:
        """Compute -> Used; the slots stay protected until the next event starts."""
        self.pipeline.leave(layer)

    def take_stall(self) -> float:
        """Seconds that inference has waited for experts since the last call."""
        before, self._stalled = self._stalled, float(self.pipeline.statistics()["stall_seconds"])
        return self._stalled - before

    def stop(self) -> None:
        """End the prefetch worker."""
        self.pipeline.stop()


class Router:
    """Connects the experts modules of one model to a placement, and keeps what was routed if asked to."""

    def __init__(self, modules: list[ExpertsModule], experts: int, placement: Placement) -> None:
        self.placement = placement
        self.pacer: LayerPacer | None = None
        self.recorded: list[NDArray[np.int32]] | None = None
        self._experts = experts
        for layer, module in enumerate(modules):
            module.seqmoe_layer = layer
            module.seqmoe_router = self

    def compute(
        self, layer: int, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """The MoE of one layer, [T, hidden] -> [T, hidden], through whatever slots its experts are in.

        Contributions are kept per (token, k) and summed in router order, so the result does not depend on which slots
        held the experts nor on how many groups a long prompt needed: offloading cannot change the model's answer.
        """
        placement = self.placement
        index = top_k_index.to(torch.int32).numpy()
        weights = top_k_weights.to(torch.float32).contiguous().numpy()
        if self.recorded is not None:
            self.recorded.append(index.copy())
        # numpy views: exporting a torch tensor to the core costs 4 us each, as long as the kernel itself at this size.
        hidden = hidden_states.to(torch.float32).contiguous().numpy()
        contribution = np.empty((*index.shape, hidden.shape[1]), dtype=np.float32)
        needed = index[0] if len(index) == 1 else np.unique(index)
        groups = placement.groups(layer, needed)
        for number, group in enumerate(groups, start=1):
            where = np.full(self._experts, -1, dtype=np.int32)
            where[group] = placement.enter(layer, group)
            if number == len(groups):
                placement.routed(layer, index[-1:], weights[-1:])
            placement.leave(layer)
            pool = placement.pool
            moe_experts(hidden, *pool.arrays, where[index], weights, contribution, **pool.options)
        out = np.empty_like(hidden)
        reduce_contributions(contribution, out)
        if self.pacer is not None:
            self.pacer.layer_done(placement.take_stall())
        return torch.from_numpy(out).to(hidden_states.dtype)


def _experts_forward(
    module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    result: torch.Tensor = module.seqmoe_router.compute(module.seqmoe_layer, hidden_states, top_k_index, top_k_weights)
    return result


ALL_EXPERTS_FUNCTIONS.register(NAME, _experts_forward)
