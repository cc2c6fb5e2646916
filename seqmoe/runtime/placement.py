"""Where expert weights are: all of them in the host pool, a share of them in the slot pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.adapters.base import ExpertsModule
from seqmoe.core.link import Link


@dataclass(frozen=True, slots=True, eq=False)
class ExpertPool:
    """Expert weights at fixed addresses: ``gate_up`` [n, 2 * width, hidden], ``down`` [n, hidden, width].

    In the host pool n is layers * experts, indexed by expert key; in a slot pool it is the number of slots. A fused MoE
    kernel reads either through the same ids (paper, section 8.1: compute-transparent placement). ``arrays`` are the
    same memory for the core.
    """

    gate_up: torch.Tensor
    down: torch.Tensor
    arrays: tuple[NDArray[np.float32], NDArray[np.float32]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", (self.gate_up.numpy(), self.down.numpy()))

    @property
    def entries(self) -> int:
        """Experts that the pool has room for."""
        return self.gate_up.shape[0]

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert."""
        return (self.gate_up[0].numel() + self.down[0].numel()) * self.gate_up.element_size()

    @staticmethod
    def empty(entries: int, like: ExpertPool) -> ExpertPool:
        """A zeroed pool of ``entries`` experts of the same shape and type."""
        return ExpertPool(
            torch.zeros((entries, *like.gate_up.shape[1:]), dtype=like.gate_up.dtype),
            torch.zeros((entries, *like.down.shape[1:]), dtype=like.down.dtype),
        )


def move_experts_to_host(experts: list[ExpertsModule]) -> ExpertPool:
    """Take the fused expert parameters out of the modules, layer by layer, into one host pool in float32."""
    first = experts[0]
    count = first.gate_up_proj.shape[0]
    pool = ExpertPool(
        torch.empty((len(experts) * count, *first.gate_up_proj.shape[1:]), dtype=torch.float32),
        torch.empty((len(experts) * count, *first.down_proj.shape[1:]), dtype=torch.float32),
    )
    with torch.no_grad():
        for layer, module in enumerate(experts):
            rows = slice(layer * count, (layer + 1) * count)
            pool.gate_up[rows].copy_(module.gate_up_proj)
            pool.down[rows].copy_(module.down_proj)
            del module.gate_up_proj, module.down_proj
    return pool


def link_between(host: ExpertPool, slots: ExpertPool, seconds_per_expert: float) -> Link:
    """The link that copies expert ``key`` of the host pool into a slot; throttled where seconds are given."""
    parts = [
        (source.data_ptr(), target.data_ptr(), source[0].numel() * source.element_size())
        for source, target in ((host.gate_up, slots.gate_up), (host.down, slots.down))
    ]
    return Link(parts, seconds_per_expert)
