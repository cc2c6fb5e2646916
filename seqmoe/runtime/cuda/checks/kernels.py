"""Kernels against references on the device itself: experts in every format, copied misses, slots, the greedy head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqmoe.adapters.base import ExpertFormat
from seqmoe.runtime.cuda.checks import CheckFailed
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.experts import ExpertsOneByOne
from seqmoe.runtime.cuda.format import PoolFormat
from seqmoe.runtime.cuda.loading import fill
from seqmoe.runtime.cuda.pool import HostExperts, SlotPool
from seqmoe.runtime.kernels import copy_misses, experts, greedy, land, plan, release_layer
from seqmoe.runtime.kernels.retention import device_retention
from seqmoe.runtime.kernels.table import Counter, DeviceTable, Misses
from seqmoe.runtime.retention import Offline
from seqmoe.spec.geometry import Geometry

# Of the largest output: inputs and outputs are bfloat16, sums are float32 in another order than the reference's.
_TOLERANCE = 0.02
_RING = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of experts to check, by format; tiny ones for a CPU."""

    hidden: int
    width: int

    def formats(self) -> dict[str, PoolFormat]:
        """Each format with the activation of a family that ships in it."""
        plain = ExpertFormat(self.hidden, self.width, "bfloat16")
        oai = ExpertFormat(self.hidden, self.width, "bfloat16", "swiglu_oai", 7.0, 1.702, bias=True)
        clamped = ExpertFormat(self.hidden, self.width, "bfloat16", "swiglu_clamped", 10.0)
        return {
            "bf16": PoolFormat(plain),
            "fp8": PoolFormat(plain, "fp8"),
            "mxfp4, biases": PoolFormat(oai, "mxfp4"),
            "mxfp4, clamped": PoolFormat(clamped, "mxfp4"),
        }


def check_kernels(device: Device, sizes: Sizes | None = None) -> dict[str, Any]:
    """All of them; the largest relative error of each format."""
    sizes = sizes or Sizes(2048, 768)
    errors = {name: check_experts(format, device) for name, format in sizes.formats().items()}
    check_copies(sizes.formats()["fp8"], device)
    check_greedy(device)
    return {"experts_error": errors, "lru_hits": check_slots(device)}


def check_experts(format: PoolFormat, device: Device, slots: int = 8) -> float:
    """Fused experts against one after another in float32; outputs are poisoned first."""
    host = HostExperts.allocate(format, Geometry(1, slots, 1), device)
    fill(host, 0.02)
    pool = SlotPool.allocate(format, slots, device)
    pool.load_all(host)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, format.shape.hidden, generator=generator).to(torch.bfloat16).to(device.device)
    ids = torch.tensor([[3, 0, 5], [5, 7, 3]], dtype=torch.int32, device=device.device)
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]], device=device.device)
    out = torch.full_like(hidden, torch.nan)
    workspace = experts.Workspace.of(6, format.shape.width, device.device)
    workspace.inner.fill_(torch.nan)
    experts.launch(pool.weights, hidden, ids, weights, workspace, out)
    wanted = ExpertsOneByOne(pool)(hidden, ids, weights).float()
    error = float((out.float() - wanted).abs().max() / wanted.abs().max())
    if not error <= _TOLERANCE:
        raise CheckFailed(f"experts kernel, {format.stored}: differs by {error:.2%} of the largest output")
    return error


def check_copies(format: PoolFormat, device: Device) -> None:
    """Misses arrive whole, in their slots and nowhere else, and the worker is told when."""
    geometry = Geometry(2, 6, 1)
    host = HostExperts.allocate(format, geometry, device)
    fill(host, 0.02)
    pool = SlotPool.allocate(format, 5, device)
    for part in pool.parts.values():
        part.zero_()
    words, control = device.region(_RING)
    table, misses = DeviceTable.empty(2, 6, 5, device.device), Misses.of(4, device.device)
    chosen = {7: 3, 2: 0, 11: 4}
    misses.key[:3] = torch.tensor(list(chosen), dtype=torch.int32)
    misses.slot[:3] = torch.tensor(list(chosen.values()), dtype=torch.int32)
    misses.count.fill_(3)
    copy_misses.launch(words, table, misses, pool.copied_from(host))
    device.synchronize()
    for name, part in pool.parts.items():
        for slot in range(5):
            keys = [key for key, place in chosen.items() if place == slot]
            source = host.parts[keys[0] // 6][name][keys[0] % 6] if keys else torch.zeros_like(part[slot]).cpu()
            if not torch.equal(part[slot].cpu().view(torch.uint8), source.view(torch.uint8)):
                raise CheckFailed(f"miss copy: {name} of slot {slot} is not what the host has")
    if control.words[1:3].tolist() != [1, 1]:
        raise CheckFailed(f"miss copy: told the worker {control.words[1:3].tolist()} of one layer that copied")


def check_greedy(device: Device) -> None:
    """The head's tokens against PyTorch's, at a vocabulary of no round size."""
    logits = torch.randn(3, 151_937, generator=torch.Generator().manual_seed(2)).to(device.device)
    tokens = torch.full((3,), -1, dtype=torch.int64, device=device.device)
    greedy.launch(logits, greedy.workspace(3, logits.shape[1], device.device), tokens)
    if not torch.equal(tokens, logits.argmax(-1)):
        raise CheckFailed(f"greedy head: {tokens.tolist()}, PyTorch {logits.argmax(-1).tolist()}")


def check_slots(device: Device, steps: int = 12) -> int:
    """Hits of LRU over a random routing, against a plain simulation of it."""
    layers, count, top_k, slots = 3, 16, 3, 14
    routing = np.random.default_rng(3).random((steps, layers, count)).argsort(-1)[..., :top_k]
    words, _ = device.region(_RING)
    table = DeviceTable.empty(layers, count, slots, device.device)
    retention = device_retention("lru", table, Offline())
    misses, ids = Misses.of(top_k, device.device), torch.zeros((1, top_k), dtype=torch.int32, device=device.device)
    for step in range(steps):
        for layer in range(layers):
            index = torch.from_numpy(routing[step, layer][None]).to(device.device)
            land.launch(words, table, _RING)
            retention.used(layer, index)
            plan.launch(table, layer, index, ids, misses)
            release_layer.launch(table, layer)
    hits = int(table.counters[Counter.HITS])
    wanted = _lru_hits(routing, slots)
    if hits != wanted:
        raise CheckFailed(f"slots: {hits} hits of LRU, a plain simulation has {wanted}")
    return hits


def _lru_hits(routing: np.ndarray[Any, Any], slots: int) -> int:
    held: dict[tuple[int, int], int] = {}
    hits = 0
    for event, (step, layer) in enumerate(np.ndindex(routing.shape[:2])):
        needed = {(layer, int(expert)) for expert in routing[step, layer]}
        hits += len(needed & held.keys())
        for key in needed - held.keys():
            if len(held) == slots:
                del held[min((k for k in held if k not in needed), key=lambda k: (held[k], k))]
            held[key] = event
        held |= dict.fromkeys(needed, event)
    return hits
