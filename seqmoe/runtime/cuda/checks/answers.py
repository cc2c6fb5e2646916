"""Full load's tokens from slots of any number, in every family, and device memory that stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from seqmoe.runtime.cuda.checks import CheckFailed
from seqmoe.runtime.cuda.checks.tiny import FAMILIES, tiny_checkpoint, untrained_mamba2
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.engine import CudaEngine
from seqmoe.runtime.cuda.loading import random_on
from seqmoe.runtime.cuda.soak import slope, soak
from seqmoe.spec.system import system

_PROMPT = (5, 9, 2, 7)
_RESIDENCIES = (1.0, 0.45, 0.0)
_SOAK_STEPS = 20_000


def check_answers(device: Device, families: tuple[str, ...] = tuple(FAMILIES), tokens: int = 32) -> dict[str, Any]:
    """Tokens and logits of every family, captured where the device captures; what the prefetch worker landed."""
    return {family: check_family(family, device, tokens) for family in families}


def check_family(family: str, device: Device, tokens: int) -> dict[str, Any]:
    """SeqMoE at three residencies, and LRU as the host brings misses, against full load in the same mode, bit by bit.

    Between modes a library may choose other kernels: the largest difference of full load's logits is told.
    """
    engine = CudaEngine(random_on(tiny_checkpoint(family), "bf16", device), device)
    length, geometry = len(_PROMPT) + tokens, engine.geometry
    least = geometry.least_slots() / geometry.total_experts
    cases = [("full", "graph", 1.0), ("full", "sync", 1.0)]
    cases += [("seqmoe", "graph", max(residency, least)) for residency in _RESIDENCIES]
    cases += [("lru", "sync", 0.45)]
    full: dict[str, torch.Tensor] = {}
    landed = 0
    for name, mode, residency in cases:
        spec = replace(system(name), execution=mode)
        engine.place(spec, residency, untrained_mamba2(geometry), length=length)
        (result,) = engine.generate([_PROMPT], tokens, keep_logits=True)
        logits = torch.stack(result.logits)
        wanted = full.setdefault(mode, logits)
        if not torch.equal(logits, wanted):
            where = int((logits != wanted).any(-1).float().argmax())
            raise CheckFailed(f"{family}: {name}, {mode}, at {residency:.0%} differs from full load at token {where}")
        landed += engine.placement.statistics().get("landed", 0)
    engine.close()
    apart = float((full["graph"] - full["sync"]).abs().max())
    return {"tokens": tokens, "prefetches_landed": landed, "graph_from_sync": apart}


def check_memory_slope(device: Device, steps: int = _SOAK_STEPS) -> dict[str, float]:
    """Many steps of a tiny model: memory allocated on the device must not grow."""
    engine = CudaEngine(random_on(tiny_checkpoint("qwen3_moe"), "bf16", device), device)
    engine.place(replace(system("seqmoe"), execution="graph"), 0.45, untrained_mamba2(engine.geometry), length=8)
    # Beyond the cache's end a step would write nowhere: requests begin anew.
    taken = soak(_restarting(engine, 8), lambda: _taken(device), steps)
    engine.close()
    found = slope(taken)
    if found > 0:
        raise CheckFailed(f"device memory grows by {found:.0f} bytes per {steps // 10} steps: {taken}")
    return {"steps": steps, "bytes": taken[-1], "slope": found}


def _restarting(engine: CudaEngine, length: int) -> Any:
    done = 0

    def advance() -> None:
        nonlocal done
        if done % length == 0:
            engine.device.synchronize()
            engine.step.reset()
        done += 1
        engine.advance()

    return advance


def _taken(device: Device) -> int:
    """Bytes taken of the whole device, other processes' among them; of a CPU none."""
    device.synchronize()
    if not device.captures:
        return 0
    free, total = torch.cuda.mem_get_info(device.device)
    return int(total - free)
