"""Speed of single kernels: the miss copy beside the link, and whether a larger pool makes a layer slower."""

from __future__ import annotations

from typing import Any

import torch

from seqmoe.adapters.base import ExpertFormat
from seqmoe.runtime.cuda.checks.timing import seconds_of
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.format import PoolFormat
from seqmoe.runtime.cuda.pool import HostExperts, SlotPool
from seqmoe.runtime.kernels import copy_misses, experts, lend, plan, release_layer
from seqmoe.runtime.kernels.table import DeviceTable, Misses
from seqmoe.spec.geometry import Geometry

_RING = 1024
# Qwen3-30B-A3B's.
_GEOMETRY = Geometry(48, 128, 8)
_EXPERT = PoolFormat(ExpertFormat(2048, 768, "bfloat16"), "fp8")


def check_copy_speed(
    device: Device, format: PoolFormat = _EXPERT, counts: tuple[int, ...] = (1, 2, 4, 8), repeats: int = 50
) -> dict[str, Any]:
    """Bytes per second of the miss-copy kernel by the number of misses of a layer."""
    geometry = Geometry(1, 16, 1)
    host = HostExperts.allocate(format, geometry, device)
    pool = SlotPool.allocate(format, 16, device)
    words, _ = device.region(_RING)
    table, misses = DeviceTable.empty(1, 16, 16, device.device), Misses.of(16, device.device)
    parts = pool.copied_from(host)
    misses.key.copy_(torch.arange(16))
    misses.slot.copy_(torch.arange(16))
    found = {}
    for count in counts:
        misses.count.fill_(count)
        seconds = seconds_of(lambda: copy_misses.launch(words, table, misses, parts), device, repeats, in_graph=True)
        found[str(count)] = count * format.expert_bytes / seconds
    return {"expert_bytes": format.expert_bytes, "bytes_per_second": found}


def check_slot_counts(
    device: Device,
    format: PoolFormat = _EXPERT,
    geometry: Geometry = _GEOMETRY,
    counts: tuple[int, ...] = (922, 1536, 2150, 2765, 6144),
    repeats: int = 50,
) -> dict[str, Any]:
    """Seconds of plan, lend and experts by the number of slots; the paper says that it makes no difference."""
    return {str(slots): _one(device, format, geometry, slots, repeats) for slots in counts}


def _one(device: Device, format: PoolFormat, geometry: Geometry, slots: int, repeats: int) -> dict[str, float]:
    where = device.device
    pool = SlotPool.allocate(format, slots, device)
    for part in pool.parts.values():
        part.zero_()
    words, _ = device.region(_RING)
    table, misses = (
        DeviceTable.empty(geometry.layers, geometry.experts, slots, where),
        Misses.of(geometry.top_k, where),
    )
    index = torch.arange(geometry.top_k, device=where)[None]
    ids = torch.zeros((1, geometry.top_k), dtype=torch.int32, device=where)
    hidden = torch.zeros((1, format.shape.hidden), dtype=format.shape.torch_dtype, device=where)
    weights = torch.full((1, geometry.top_k), 1 / geometry.top_k, device=where)
    out, workspace = torch.empty_like(hidden), experts.Workspace.of(geometry.top_k, format.shape.width, where)

    def planned() -> None:
        plan.launch(table, 0, index, ids, misses)
        release_layer.launch(table, 0)

    return {
        "plan_and_release": seconds_of(planned, device, repeats, in_graph=True),
        "lend": seconds_of(lambda: lend.launch(words, table, _RING, min(4, slots - 1)), device, repeats, in_graph=True),
        "experts": seconds_of(
            lambda: experts.launch(pool.weights, hidden, ids, weights, workspace, out), device, repeats, in_graph=True
        ),
    }
