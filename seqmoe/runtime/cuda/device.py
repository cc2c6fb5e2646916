"""What the engine asks of a device: memory that both sides see, a link, and whether a step can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.core.control import Control, control_words
from seqmoe.core.driver import LIBRARY, CudaContext, CudaDriver
from seqmoe.core.link import Channel, DmaLink, Link
from seqmoe.core.mapped_memory import map_memory
from seqmoe.spec.errors import OutOfMemoryError

Target = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Host memory uint8 [n] that the device reads and writes in place; ``address`` is where the device finds it."""

    bytes: torch.Tensor
    address: int
    owner: Any = None

    @property
    def host(self) -> int:
        """Where the host finds it."""
        return self.bytes.data_ptr()


class Device(Protocol):
    """A GPU, or the CPU that stands in for one where kernels are interpreted."""

    device: torch.device
    captures: bool

    def chunks(self, sizes: Sequence[int]) -> list[Chunk]:
        """Host memory for the experts, one piece for each of ``sizes`` bytes."""
        ...

    def region(self, capacity: int) -> tuple[torch.Tensor, Control]:
        """A control region with rings of ``capacity``: its words as the device has them, and the host's view."""
        ...

    def link(self, sources: NDArray[np.int64], targets: Sequence[Target]) -> Channel:
        """From ``sources`` [keys, parts], host addresses, to ``targets`` (device address, stride, bytes) by part."""
        ...

    def check_room(self, parts: dict[str, int]) -> None:
        """Raise `OutOfMemoryError` with the sum where these bytes do not fit into the device's memory."""
        ...

    def synchronize(self) -> None:
        """Wait for everything that was launched."""
        ...


class HostDevice:
    """The CPU in a device's place: its memory is the host's, its link a copy, its kernels are interpreted."""

    device = torch.device("cpu")
    captures = False

    def chunks(self, sizes: Sequence[int]) -> list[Chunk]:
        """See `Device`; all of it lies in one piece, as the plain link reads it."""
        whole = torch.zeros(sum(sizes), dtype=torch.uint8)
        return [Chunk(piece, piece.data_ptr()) for piece in whole.split(list(sizes))]

    def region(self, capacity: int) -> tuple[torch.Tensor, Control]:
        """See `Device`."""
        words = torch.zeros(control_words(capacity), dtype=torch.int64)
        return words, Control.prepare(words.numpy(), capacity)

    def link(self, sources: NDArray[np.int64], targets: Sequence[Target]) -> Channel:
        """See `Device`. ``ValueError`` for experts that do not lie one behind another."""
        parts = []
        for source, (address, stride, size) in zip(sources.T, targets, strict=True):
            if stride != size or (np.diff(source) != size).any():
                raise ValueError("a plain link takes experts and slots that lie one behind another")
            parts.append((int(source[0]), address, size))
        return Link(parts, 0.0)

    def check_room(self, parts: dict[str, int]) -> None:
        """The host's memory is planned elsewhere."""

    def synchronize(self) -> None:
        """Nothing is ever under way."""


class GpuDevice:
    """One NVIDIA GPU, through PyTorch and the driver's own calls in the same (primary) context.

    Raises `seqmoe.core.driver.CudaMissingError` or ``CudaError`` where there is none.
    """

    captures = True

    def __init__(self, index: int = 0, library: str = LIBRARY) -> None:
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        torch.cuda.init()
        self._context = CudaContext(CudaDriver(library), index)

    def chunks(self, sizes: Sequence[int]) -> list[Chunk]:
        """See `Device`; pinned, mapped, and read back through the device. Raises ``PinningError`` with the limit."""
        memory = map_memory(self._context, sizes)
        return [
            Chunk(torch.from_numpy(memory.bytes(number)), memory.device[number], memory) for number in range(len(sizes))
        ]

    def region(self, capacity: int) -> tuple[torch.Tensor, Control]:
        """See `Device`."""
        count = control_words(capacity)
        (chunk,) = self.chunks([count * 8])
        control = Control.prepare(chunk.bytes.view(torch.int64).numpy(), capacity)
        return self.tensor(_Mapped(chunk, count)), control

    def tensor(self, mapped: _Mapped) -> torch.Tensor:
        """Mapped host memory as a tensor of the device."""
        return torch.as_tensor(mapped, device=self.device)

    def link(self, sources: NDArray[np.int64], targets: Sequence[Target]) -> Channel:
        """See `Device`; by the copy engine, on a stream of its own."""
        return DmaLink(self._context, np.ascontiguousarray(sources), list(targets))

    def check_room(self, parts: dict[str, int]) -> None:
        """See `Device`."""
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self.device)
        check_sum(parts, free)

    def synchronize(self) -> None:
        """See `Device`."""
        torch.cuda.synchronize(self.device)


class _Mapped:
    """Mapped host memory as PyTorch takes foreign memory: int64 [n] at the device's address."""

    def __init__(self, chunk: Chunk, count: int) -> None:
        self.chunk = chunk
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "<i8", "data": (chunk.address, False), "version": 2,
        }  # fmt: skip


def check_sum(parts: dict[str, int], free: int) -> None:
    """Raise `OutOfMemoryError` with the sum of ``parts`` (bytes by name) where it exceeds ``free``."""
    total = sum(parts.values())
    if total > free:
        terms = " + ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in parts.items() if size)
        raise OutOfMemoryError(
            f"device memory: {terms} = {total / 2**30:.2f} GiB, but {free / 2**30:.2f} GiB are free; choose a smaller "
            "residency, batch or length"
        )
