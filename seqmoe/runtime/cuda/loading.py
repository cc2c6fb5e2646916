"""A model on the device and its experts in host memory that the device reads: from a checkpoint, or random."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from seqmoe.adapters.base import ExpertsModule, Family
from seqmoe.runtime.available_memory import available_memory
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.format import STORED, PoolFormat
from seqmoe.runtime.cuda.pool import HostExperts
from seqmoe.runtime.cuda.step import NAME
from seqmoe.runtime.loading import load
from seqmoe.runtime.memory_plan import MemoryPlan, non_expert_bytes
from seqmoe.runtime.random_model.weights import lay_out, random_non_experts

_SEED = 0
# e8m0 of 2^-7: with uniformly drawn e2m1, whose standard deviation is 2.9, weights are about as large as a new model's.
_MXFP4_SCALE = 120


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A model whose ``experts`` modules, one per MoE layer, call the device's placement; their weights are ``host``."""

    model: Any
    experts: list[ExpertsModule]
    host: HostExperts
    family: Family


def load_on(checkpoint: Checkpoint, device: Device) -> DeviceModel:
    """Load a checkpoint in its ``dtype``. Its experts are in host memory twice for a time.

    Raises `InputError` as `seqmoe.runtime.loading.load` does, ``PinningError`` with the limit of pinned memory.
    """
    loaded = load(checkpoint)
    format = PoolFormat(checkpoint.format)
    host = HostExperts.allocate(format, replace(checkpoint.geometry, expert_bytes=format.expert_bytes), device)
    count = host.geometry.experts
    source = loaded.host.resident().tensors
    for layer, parts in enumerate(host.parts):
        for name, part in parts.items():
            part.copy_(source[name][layer * count : (layer + 1) * count])
    return _on_device(loaded.model, host, checkpoint.family, device)


def random_on(checkpoint: Checkpoint, stored: str, device: Device) -> DeviceModel:
    """A model on random weights, its experts as a declared model of format ``stored`` (bf16, fp8, mxfp4) has them.

    Raises `OutOfMemoryError` with the sum where host memory is too small, ``PinningError`` with the limit of pinning.
    """
    format = PoolFormat(checkpoint.format, STORED[stored])
    geometry = replace(checkpoint.geometry, expert_bytes=format.expert_bytes)
    pool = geometry.total_experts * geometry.expert_bytes
    plan = MemoryPlan((("non-experts", non_expert_bytes(checkpoint)), ("pinned pool", pool)), available_memory())
    plan.check(f"try --layers below {geometry.layers}")
    host = HostExperts.allocate(format, geometry, device)
    fill(host, checkpoint.config.initializer_range)
    return _on_device(random_non_experts(checkpoint), host, checkpoint.family, device)


def fill(host: HostExperts, deviation: float) -> None:
    """Random numbers of about that standard deviation in every part; no two experts are alike."""
    count, layers = host.geometry.experts, len(host.parts)
    generator = torch.Generator().manual_seed(_SEED)
    for name, (_, dtype) in host.format.parts.items():
        size = host.parts[0][name][0].numel() + count * layers
        drawn = _drawn(host.format.stored, name, size, deviation, generator).to(dtype)
        for layer, parts in enumerate(host.parts):
            lay_out(parts[name], drawn, layer * count)


def _drawn(stored: str, name: str, size: int, deviation: float, generator: torch.Generator) -> torch.Tensor:
    normal = torch.empty(size).normal_(generator=generator)
    if name.endswith("_bias") or stored == "dense":
        return normal * deviation
    if stored == "fp8":
        positive = normal.abs().clamp(0.5, 2.0) * deviation
        return positive if name.endswith("_scale") else normal.to(torch.float8_e4m3fn).view(torch.uint8)
    if name.endswith("_scale"):
        return torch.full((size,), _MXFP4_SCALE, dtype=torch.uint8)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)


def _on_device(model: Any, host: HostExperts, family: Family, device: Device) -> DeviceModel:
    model.set_experts_implementation(NAME)
    model.to(device.device)
    return DeviceModel(model, family.experts(model), host, family)
