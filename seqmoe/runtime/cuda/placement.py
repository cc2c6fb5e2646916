"""Where a decode step's experts are: all of them on the device, or in slots that the device fills and empties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from seqmoe.core.budget import TransferBudget
from seqmoe.core.device_worker import DeviceWorker
from seqmoe.core.slots import EMPTY
from seqmoe.predictor.base import Predictor
from seqmoe.runtime.cuda.clock import CopyClock
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.experts import ExpertsOneByOne
from seqmoe.runtime.cuda.forecaster import DeviceForecaster
from seqmoe.runtime.cuda.pool import HostExperts, SlotPool
from seqmoe.runtime.kernels import copy_misses, dispatch, land, lend, plan, release_layer
from seqmoe.runtime.kernels.library import ExpertsFunction, experts_function
from seqmoe.runtime.kernels.retention import device_retention
from seqmoe.runtime.kernels.table import Counter, DeviceTable, Misses
from seqmoe.runtime.retention import Offline
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import SystemSpec

# Entries of each ring: several steps' tasks of the largest model; the worker reads them within microseconds.
_CAPACITY = 4096
# Slots lent at a time. A link moves about one expert in a layer's time, and the device lends anew in every layer.
_LENT = 4
# What the worker believes of the link, in experts per layer, until it has seen some transfers.
_FIRST_BUDGET = 1.0
_REFUSED_RETENTION = "prefill_hot"


class DevicePlacement(Protocol):
    """Computes the MoE of each layer of a decode step; nothing in `layer` waits for the device unless it says so."""

    pool: SlotPool

    def begin_request(self) -> None:
        """New requests begin and the device rests."""
        ...

    def before_step(self) -> None:
        """A decode step follows."""
        ...

    def layer(self, layer: int, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """``index`` int64 and ``weights`` [tokens, choices] of a router; [tokens, hidden] -> [tokens, hidden]."""
        ...

    def check(self) -> None:
        """Raise what has gone wrong beside the device or on it; waits for the device."""
        ...

    def statistics(self) -> dict[str, int]:
        """Counts so far, by name; waits for the device."""
        ...

    def stop(self) -> None:
        """End what runs beside the device."""
        ...


class Resident:
    """Every expert is on the device: an expert's slot is its key."""

    def __init__(self, host: HostExperts, device: Device, rows: int, execution: str, kernel: str) -> None:
        geometry = host.geometry
        device.check_room({"experts": geometry.total_experts * host.format.expert_bytes})
        self.pool = SlotPool.allocate(host.format, geometry.total_experts, device)
        self.pool.load_all(host)
        device.synchronize()
        self._experts = geometry.experts
        self._compute = _computing(self.pool, rows, execution, kernel)

    def begin_request(self) -> None:
        """Nothing depends on history."""

    def before_step(self) -> None:
        """Nothing to prepare."""

    def layer(self, layer: int, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See `DevicePlacement`."""
        slot_ids = (index + layer * self._experts).to(torch.int32).contiguous()
        return self._compute(hidden.contiguous(), slot_ids, weights.contiguous())

    def check(self) -> None:
        """Nothing can."""

    def statistics(self) -> dict[str, int]:
        """Nothing is counted."""
        return {}

    def stop(self) -> None:
        """Nothing runs."""


@dataclass(frozen=True, slots=True)
class SlotsRequest:
    """What a slot pool is made for: a system at a residency, a batch, and what it knows beforehand."""

    spec: SystemSpec
    residency: float
    batch: int
    predictor: Predictor | None
    offline: Offline

    def check(self) -> None:
        """Raise `InputError` for what the device does not do."""
        if self.spec.retention == _REFUSED_RETENTION:
            raise InputError(
                f"system {self.spec.name!r}: the CUDA runtime takes prompts token by token, so it has no counts of a "
                "whole prompt; choose another system"
            )
        if self.spec.reserve != "selection":
            raise InputError(f"reserve = {self.spec.reserve!r}: on a device slots are reserved at 'selection' only")


class Slots:
    """A slot pool of a residency, its table, its scores and its prefetch worker (paper, section 8).

    Per layer: land, scores by use, plan, copy the misses, at a trigger layer forecast, scores and tasks, lend, compute,
    release. ``execution`` "sync" and "eager" let the host read the list of misses and copy them itself; ``kernel`` is
    one of `seqmoe.runtime.kernels.library.EXPERTS`.
    """

    def __init__(self, host: HostExperts, device: Device, request: SlotsRequest, execution: str, kernel: str) -> None:
        request.check()
        spec, geometry = request.spec, host.geometry
        slots, rows = geometry.slots(request.residency, request.batch), request.batch * geometry.top_k
        device.check_room({"slots": slots * host.format.expert_bytes})
        self._host, self._geometry, self._spec = host, geometry, spec
        self.pool = SlotPool.allocate(host.format, slots, device)
        self.table = DeviceTable.empty(geometry.layers, geometry.experts, slots, device.device)
        self._words, self.control = device.region(_CAPACITY)
        self._retention = device_retention(spec.retention, self.table, request.offline)
        self._misses = Misses.of(rows, device.device)
        self._slot_ids = torch.zeros((request.batch, geometry.top_k), dtype=torch.int32, device=device.device)
        self._parts = self.pool.copied_from(host)
        self._compute = _computing(self.pool, rows, execution, kernel)
        self._bring = self._bring_on_device if execution == "graph" else self._bring_by_host
        predictor = request.predictor if spec.predictor != "none" else None
        self._forecaster = DeviceForecaster(predictor, spec.lookahead, device.device) if predictor is not None else None
        self._tasks = 0 if spec.prefetch == "none" else min(geometry.top_k + spec.extra, geometry.experts)
        self._want = min(_LENT, slots - geometry.least_slots(request.batch)) if self._tasks else 0
        self._worker = self._start_worker(device) if self._want else None
        self._step = -1
        self.clock: CopyClock | None = None

    def _start_worker(self, device: Device) -> DeviceWorker:
        self._link = self.pool.linked_to(self._host, device)
        layers, experts = self._geometry.layers, self._geometry.experts
        budget, order = TransferBudget(_FIRST_BUDGET), self._spec.prefetch
        return DeviceWorker(self.control.words, self._link, budget, layers, experts, self.pool.slots, order)

    def begin_request(self) -> None:
        """What is of the last requests only is forgotten; the pool stays warm."""
        self._retention.begin_request(self._step + 1)
        if self._forecaster is not None:
            self._forecaster.reset()
        if self._worker is not None:
            self._worker.check()
            self._worker.forget()

    def before_step(self) -> None:
        """Scores that would outgrow their type start over; an error of the worker is raised."""
        self._step += 1
        self._retention.before_step(self._step)
        if self._worker is not None:
            self._worker.check()

    def layer(self, layer: int, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See `DevicePlacement`."""
        index = index.contiguous()
        land.launch(self._words, self.table, _CAPACITY)
        self._retention.used(layer, index)
        plan.launch(self.table, layer, index, self._slot_ids, self._misses)
        self._bring()
        if self._forecaster is not None:
            self._forecaster.routed(layer, index, weights)
            self._forecast(self._forecaster, layer)
        if self._want:
            lend.launch(self._words, self.table, _CAPACITY, self._want)
        out = self._compute(hidden.contiguous(), self._slot_ids, weights.contiguous())
        release_layer.launch(self.table, layer)
        if self._spec.retention == "none":
            self._keep_none()
        return out

    def _forecast(self, forecaster: DeviceForecaster, layer: int) -> None:
        found = forecaster.forecast(layer)
        if found is None:
            return
        first, probability = found
        self._retention.forecast(first, probability)
        if self._want:
            dispatch.launch(self._words, self.table, _CAPACITY, probability[0], first, self._tasks)

    def _timed(self, copy: Callable[[], None]) -> None:
        """Copy, by the clock if there is one."""
        if self.clock is None:
            copy()
        else:
            self.clock.around(copy)

    def _bring_on_device(self) -> None:
        self._timed(lambda: copy_misses.launch(self._words, self.table, self._misses, self._parts))

    def _bring_by_host(self) -> None:
        """The host waits for the list and copies what is on it."""
        count = int(self._misses.count)
        keys, slots = (part[:count].tolist() for part in (self._misses.key, self._misses.slot))

        def copy() -> None:
            for key, slot in zip(keys, slots, strict=True):
                self.pool.load(self._host, key, slot)

        self._timed(copy)

    def _keep_none(self) -> None:
        """Nothing stays beyond its layer, and nothing is ever lent: all slots are empty again."""
        self.table.state.fill_(EMPTY)
        self.table.owner.fill_(-1)
        self.table.slot_of.fill_(-1)

    def check(self) -> None:
        """An error of the worker, or ``RuntimeError`` for experts that were needed and found no slot."""
        if self._worker is not None:
            self._worker.check()
        unplaced = int(self.table.counters[Counter.UNPLACED])
        if unplaced:
            raise RuntimeError(
                f"{unplaced} experts found no slot and were left out: of {self.pool.slots} slots too many were lent"
            )

    def statistics(self) -> dict[str, int]:
        """The device's counters and the worker's, by name (`Counter`, `seqmoe.core.device_worker`)."""
        counters = self.table.counters.tolist()
        found = {counter.name.lower(): int(counters[counter]) for counter in Counter}
        if self._worker is not None:
            found |= {f"worker_{name}": int(value) for name, value in self._worker.statistics().items()}
        return found

    def stop(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.stop()


def _computing(pool: SlotPool, rows: int, execution: str, kernel: str) -> ExpertsFunction:
    return ExpertsOneByOne(pool) if execution == "eager" else experts_function(kernel, pool.weights, rows)
