"""The offloaded placement: a pool of slots, filled by misses and prefetches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.budget import TransferBudget
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable
from seqmoe.predictor.base import Predictor
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.forecasting import ForecastDriver
from seqmoe.runtime.host_misses import HostMisses
from seqmoe.runtime.host_pool import HostPool
from seqmoe.runtime.placement import ExpertPool
from seqmoe.runtime.prefill import PromptPrefetcher
from seqmoe.runtime.prompt import PromptEvent
from seqmoe.runtime.retention import Offline, Retention
from seqmoe.runtime.retention_kinds import retention_of
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec

# Positions from one layer of a prompt to the next: a prefetch due by the next position can never be sent, but a
# prompt's layer lasts long enough for one.
_PROMPT_STRIDE = 2
# The layers of a prompt one after another, each by what is needed most.
_PROMPT_ORDER = "promoe"


class Offloaded:
    """A slot pool of ``geometry.slots(residency)`` experts, filled by misses and prefetches over a link.

    Per layer, in the paper's order (its section 8.3): land finished prefetches, load misses, and at a trigger layer
    forecast the next step, then the scores, then new tasks. ``misses`` is there where the CPU takes part of them.
    """

    def __init__(
        self,
        host: HostPool,
        geometry: Geometry,
        spec: SystemSpec,
        residency: float,
        predictor: Predictor | None,
        emulation: Emulation | None = None,
        offline: Offline | None = None,
    ) -> None:
        offline = offline or Offline()
        slots = geometry.slots(residency)
        self._host = host  # the link knows its address only
        self.pool = ExpertPool.empty(slots, host.format)
        # Without emulation the link is a plain copy, taken to move a whole layer's experts in a layer's time.
        self.link = host.link_to(self.pool, emulation.link_seconds_per_expert if emulation else 0.0)
        experts_per_layer = emulation.overlap_ratio if emulation else float(geometry.experts)
        self.table = SlotTable(geometry.layers, geometry.experts, slots)
        self._order = "matroid" if spec.prefetch == "none" else spec.prefetch
        self.pipeline = OffloadPipeline(
            self.table,
            self.link,
            TransferBudget(experts_per_layer),
            evict_after_layer=spec.retention == "none",
            order=self._order,
            reserve=spec.reserve,
        )
        self._geometry, self._residency = geometry, residency
        self._retention = retention_of(spec.retention, self.table.score, offline)
        self._prompt = PromptPrefetcher(spec.prefill, geometry, slots, self.table, self.pipeline, offline.popularity)
        self._driver = (
            ForecastDriver(spec, geometry, predictor, self._retention, self.pipeline)
            if predictor is not None and spec.predictor != "none"
            else None
        )
        self.misses = HostMisses(host, geometry, emulation) if spec.miss == "cpu" else None
        self.scores_on_access = type(self._retention).used is not Retention.used
        self.trigger_layers = self._driver.trigger_layers if self._driver is not None else frozenset()
        self._step = -1
        self._position, self._stride = -geometry.layers, 1
        self._stalled = 0.0

    @property
    def predictor_ns(self) -> int:
        """Nanoseconds spent in the predictor so far."""
        return self._driver.predictor_ns if self._driver is not None else 0

    @property
    def prefill_policy(self) -> str:
        """How prompts fetch ahead; "on_demand" also where the system's own policy lacks its popularity."""
        return self._prompt.policy

    def begin_request(self, batch: int) -> None:
        """Reset what is of one batch only; the pool stays warm."""
        self._leave_room(batch)
        self._retention.begin_request(self._step + 1)
        if self._driver is not None:
            self._driver.begin_request()

    def resize(self, batch: int) -> None:
        """Room for as many; scores and forecasts go on."""
        self._leave_room(batch)
        self._retention.resized(self._step + 1)

    def _leave_room(self, batch: int) -> None:
        """Prefetches in flight leave room for what a layer may miss."""
        slots = self._geometry.slots(self._residency, batch)
        self.table.fetch_limit = slots - self._geometry.least_slots(batch)

    def begin_step(self) -> int:
        """One token of each request."""
        self._step += 1
        self._position = self._end
        if self._stride != 1:
            self._stride, self.pipeline.order = 1, self._order
        return self._position

    def begin_prompt(self, steps: int) -> None:
        """Start to fetch what the first layers will need."""
        self._step += steps
        self._position, self._stride = self._end + _PROMPT_STRIDE, _PROMPT_STRIDE
        self.pipeline.order = _PROMPT_ORDER
        self._prompt.begin(steps, self._position, self._stride)

    @property
    def _end(self) -> int:
        """The position after the last layer of this step."""
        return self._position + self._geometry.layers * self._stride

    def needed(self, layer: int, group: NDArray[np.int32]) -> None:
        """Scores by recency and frequency change."""
        self._retention.used(layer, self._step, group)

    def place(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> NDArray[np.int32]:
        """Land finished prefetches, load misses, feed the predictor."""
        if len(experts) == 1:
            ids = self._enter(layer, experts[0])[None]
        else:
            group, place = np.unique(experts, return_inverse=True)
            ids = self._enter(layer, group)[place.reshape(experts.shape)]
        if self._driver is not None:
            self.routed(layer, experts, weights)
        self.pipeline.leave(layer)
        return ids

    def _enter(self, layer: int, group: NDArray[np.int32]) -> NDArray[np.int32]:
        if self.scores_on_access:
            self._retention.used(layer, self._step, group)
        position = self._position + layer
        if self.misses is None:
            return self.pipeline.enter(layer, position, group)
        slots = self.pipeline.enter(layer, position, group, self.misses.loads(len(group)))
        self.misses.entered(self.pipeline.last_event)
        return slots

    def place_prompt(self, layer: int, event: PromptEvent) -> Iterator[NDArray[np.int32]]:
        """As `place`, but a prompt may need more experts of a layer than the pool has slots."""
        self._retention.prompt(layer, self._step, event.active(self._geometry.experts))
        distinct = np.unique(event.experts[event.real])
        position = self._position + layer * self._stride
        slots = self.pool.entries
        for start in range(0, len(distinct), slots):
            group = distinct[start : start + slots]
            where = np.full(self._geometry.experts, -1, dtype=np.int32)
            where[group] = self.pipeline.enter(layer, position, group)
            if start + slots >= len(distinct):
                self._prompt.after(layer)
                if layer + 1 == self._geometry.layers:
                    self.pipeline.write_off()  # so that no waste of the prompt counts in its decoding
                if self._driver is not None:
                    self._driver.prompt_routed(self._step, layer, event, self._end)
            self.pipeline.leave(layer)
            yield np.where(event.real[:, None], where[event.experts], np.int32(-1))

    def routed(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Feed the predictor."""
        if self._driver is not None:
            self._driver.routed(self._step, layer, experts, weights, self._end)

    def on_host(
        self, layer: int, experts: NDArray[np.int32], slots: NDArray[np.int32]
    ) -> tuple[ExpertPool, NDArray[np.int32]] | None:
        """Misses that were not loaded, where misses are the CPU's."""
        return self.misses.on_host(layer, experts, slots) if self.misses is not None else None

    def take_waits(self) -> tuple[float, float]:
        """Seconds that inference has waited for experts since the last call, and that an imitated host would take."""
        before, self._stalled = self._stalled, float(self.pipeline.statistics()["stall_seconds"])
        stall = self._stalled - before
        return stall, self.misses.take(stall) if self.misses is not None else stall

    def stop(self) -> None:
        """End the prefetch worker."""
        self.pipeline.stop()
