"""Which share of a model's experts a GPU can hold beside everything that must be there, by arithmetic alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqmoe.spec.model import Model

# Those that the paper's figures have; 1.0 is full load.
RESIDENCIES = (0.15, 0.25, 0.35, 0.45, 1.0)
# The rest of a GPU is for its context, graphs and activations: an assumption, the simulator's as well.
USABLE = 0.9
# A prompt as in the paper's time to first token and an output of its middle length.
TOKENS = 1024 + 576


@dataclass(frozen=True, slots=True)
class Fit:
    """What of ``model`` fits: ``residencies`` of `RESIDENCIES`, and the ``largest`` residency, 0 if none does.

    ``device_bytes`` is what the largest takes of the GPU; ``host_bytes`` is the pool of all experts in host memory,
    which every residency below 1 needs, and ``reason`` says what is too small where nothing fits.
    """

    model: str
    residencies: tuple[float, ...]
    largest: float
    device_bytes: int
    host_bytes: int
    reason: str = ""


def fit(model: Model, device: int, host: int, tokens: int = TOKENS, batch: int = 1) -> Fit:
    """How much of a model fits into ``device`` bytes of GPU memory and ``host`` bytes of pinned host memory.

    `USABLE` of the GPU holds the non-experts, the slots, the predictor, and the caches of ``batch`` requests of
    ``tokens`` tokens. Full load needs no pool on the host.
    """
    geometry = model.geometry
    decoding = model.decoding
    fixed = model.non_expert_bytes + math.ceil((1 - USABLE) * device)
    if decoding is not None:
        fixed += decoding.predictor_bytes + decoding.cached_bytes * tokens * batch
    pool = geometry.total_experts * model.expert_bytes
    slots = min(geometry.total_experts, max(0, device - fixed) // model.expert_bytes)
    least = geometry.least_slots(batch)
    if slots < least:
        need = fixed + least * model.expert_bytes
        return Fit(model.name, (), 0.0, 0, pool, f"GPU memory: {_gib(need)} are needed, {_gib(device)} are there")
    if slots < geometry.total_experts and pool > host:
        return Fit(model.name, (), 0.0, 0, pool, f"host memory: {_gib(pool)} are needed, {_gib(host)} are there")
    largest = math.floor(slots / geometry.total_experts * 1e4) / 1e4
    # Below full load the experts lie in host memory, whatever the GPU could hold.
    legal = tuple(
        share
        for share in RESIDENCIES
        if least <= round(share * geometry.total_experts) <= slots and (share == 1.0 or pool <= host)
    )
    return Fit(model.name, legal, largest, fixed + slots * model.expert_bytes, pool)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
