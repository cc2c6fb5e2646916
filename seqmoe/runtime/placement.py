"""Where expert weights are: all of them in the host pool, a share of them in the slot pool."""

from __future__ import annotations

import contextlib
import math
import mmap
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.adapters.base import ExpertFormat, ExpertsModule
from seqmoe.adapters.layout import StoredLayout
from seqmoe.core.link import Link

# Below two huge pages of 2 MiB there is nothing to gain.
_HUGE_FROM = 4 * 2**20

Weights = NDArray[np.float32] | NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class ExpertPool:
    """Expert weights at fixed addresses: ``gate_up`` [n, 2 * width, hidden], ``down`` [n, hidden, width].

    Families with biases also have ``gate_up_bias`` [n, 2 * width] and ``down_bias`` [n, hidden]. All are of the
    format's type. In the host pool n is layers * experts, indexed by expert key; in a slot pool it is the number of
    slots. A fused MoE kernel reads either through the same ids (paper, section 8.1: compute-transparent placement).

    ``arrays`` are the two matrices as the core reads them (bfloat16 as uint16 bits), ``options`` the keyword arguments
    of `seqmoe.core.moe.moe_experts` that say how to compute them.
    """

    format: ExpertFormat
    gate_up: torch.Tensor
    down: torch.Tensor
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    arrays: tuple[Weights, Weights] = field(init=False)
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        views = {name: _numpy(tensor) for name, tensor in self.tensors.items()}
        object.__setattr__(self, "arrays", (views.pop("gate_up"), views.pop("down")))
        how = {"activation": self.format.activation, "limit": self.format.limit, "alpha": self.format.alpha}
        object.__setattr__(self, "options", how | views)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The parts that the format has, by name, in the format's order."""
        return {name: getattr(self, name) for name in self.format.parts}

    @property
    def entries(self) -> int:
        """Experts that the pool has room for."""
        return self.gate_up.shape[0]

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert."""
        return self.format.expert_bytes

    @staticmethod
    def empty(entries: int, format: ExpertFormat, pinned: bool = False) -> ExpertPool:
        """A zeroed pool of ``entries`` experts; ``pinned`` memory is page-locked, which needs CUDA."""
        make = _pinned if pinned else _pages
        return ExpertPool(
            format, **{name: make((entries, *shape), format.torch_dtype) for name, shape in format.parts.items()}
        )

    def resident(self) -> ExpertPool:
        """Every expert in memory, for a full load: this pool itself."""
        return self

    def link_to(self, slots: ExpertPool, seconds_per_expert: float) -> Link:
        """The link that copies expert ``key`` of this pool into a slot; throttled where seconds are given."""
        parts = [
            (source.data_ptr(), target.data_ptr(), source[0].numel() * source.element_size())
            for source, target in zip(self.tensors.values(), slots.tensors.values(), strict=True)
        ]
        return Link(parts, seconds_per_expert)


def move_experts_to_host(experts: list[ExpertsModule], layout: StoredLayout, format: ExpertFormat) -> ExpertPool:
    """Take the fused expert parameters out of loaded modules, layer by layer, into one host pool.

    Checkpoints are streamed by `seqmoe.runtime.loading` instead, which never holds an expert twice.
    """
    names = [piece.name.removeprefix("experts.") for piece in layout.pieces]
    count = getattr(experts[0], names[0]).shape[0]
    pool = ExpertPool.empty(len(experts) * count, format)
    with torch.no_grad():
        for layer, module in enumerate(experts):
            for name, piece in zip(names, layout.pieces, strict=True):
                fused = getattr(module, name)
                for expert in range(count):
                    piece.place((fused[expert],), pool.tensors[piece.part][layer * count + expert])
                delattr(module, name)
    return pool


def _pinned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, pin_memory=True)


def _pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeroed memory that asks for huge pages, which PyTorch's allocator does not; taken when it is first written."""
    size = max(math.prod(shape) * dtype.itemsize, 1)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel built without huge pages refuses the advice, which changes nothing but speed.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(shape)


def _numpy(tensor: torch.Tensor) -> Weights:
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
