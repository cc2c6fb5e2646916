"""All experts in host memory that the device reads in place, and a share of them in slots on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.core.link import Channel
from seqmoe.runtime.cuda.device import Chunk, Device
from seqmoe.runtime.cuda.format import PoolFormat
from seqmoe.runtime.kernels.copy_misses import PoolParts
from seqmoe.runtime.kernels.weights import ExpertWeights
from seqmoe.spec.geometry import Geometry


@dataclass(frozen=True, slots=True, eq=False)
class HostExperts:
    """The host pool. ``parts`` [layer][name] are tensors [experts, ...] in memory that the device sees.

    ``host`` and ``mapped`` int64 [keys, parts] are where host and device find each expert's parts.
    """

    format: PoolFormat
    geometry: Geometry
    parts: list[dict[str, torch.Tensor]]
    host: NDArray[np.int64]
    mapped: NDArray[np.int64]
    chunks: list[Chunk]

    @staticmethod
    def allocate(format: PoolFormat, geometry: Geometry, device: Device) -> HostExperts:
        """Uninitialised memory for every expert: a piece of it for each layer's each part."""
        sizes, names = format.part_bytes, list(format.parts)
        # Part by part, so that experts lie one behind another where memory comes in one piece.
        chunks = device.chunks([sizes[name] * geometry.experts for name in names for _ in range(geometry.layers)])
        parts: list[dict[str, torch.Tensor]] = [{} for _ in range(geometry.layers)]
        host = np.empty((geometry.layers, geometry.experts, len(names)), dtype=np.int64)
        mapped = np.empty_like(host)
        for column, name in enumerate(names):
            shape, dtype = format.parts[name]
            offsets = np.arange(geometry.experts) * sizes[name]
            for layer in range(geometry.layers):
                chunk = chunks[column * geometry.layers + layer]
                parts[layer][name] = chunk.bytes.view(dtype).view(geometry.experts, *shape)
                host[layer, :, column] = chunk.host + offsets
                mapped[layer, :, column] = chunk.address + offsets
        keys = (geometry.total_experts, len(names))
        return HostExperts(format, geometry, parts, host.reshape(keys), mapped.reshape(keys), chunks)


@dataclass(frozen=True, slots=True, eq=False)
class SlotPool:
    """Slots on the device: ``parts`` [slots, ...] by name."""

    format: PoolFormat
    parts: dict[str, torch.Tensor]
    weights: ExpertWeights

    @staticmethod
    def allocate(format: PoolFormat, slots: int, device: Device) -> SlotPool:
        """Uninitialised slots."""
        parts = format.empty(slots, device.device)
        return SlotPool(format, parts, format.weights(parts))

    @property
    def slots(self) -> int:
        """How many there are."""
        return len(self.parts["gate_up"])

    def load(self, host: HostExperts, key: int, slot: int) -> None:
        """Copy one expert into a slot, from the host's side."""
        layer, expert = divmod(key, host.geometry.experts)
        for name, part in self.parts.items():
            part[slot].copy_(host.parts[layer][name][expert], non_blocking=True)

    def load_all(self, host: HostExperts) -> None:
        """Copy every expert into the slot of its key, for a full load."""
        experts = host.geometry.experts
        for layer, parts in enumerate(host.parts):
            for name, part in self.parts.items():
                part[layer * experts : (layer + 1) * experts].copy_(parts[name], non_blocking=True)

    def copied_from(self, host: HostExperts) -> PoolParts:
        """How the device copies misses from the host pool into these slots."""
        target = torch.tensor([part.data_ptr() for part in self.parts.values()], dtype=torch.int64)
        source = torch.from_numpy(np.ascontiguousarray(host.mapped.T))
        device = self.parts["gate_up"].device
        return PoolParts(source.to(device), target.to(device), tuple(self.format.part_bytes.values()))

    def linked_to(self, host: HostExperts, device: Device) -> Channel:
        """The link that the prefetch worker drives."""
        sizes = self.format.part_bytes
        targets = [(part.data_ptr(), sizes[name], sizes[name]) for name, part in self.parts.items()]
        return device.link(host.host, targets)
