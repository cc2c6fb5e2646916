"""Pinned host memory that a GPU reads and writes in place: the host pool, and the control region.

It is pinned in chunks, since one piece of a whole model's size is refused where several are not. Under WSL2 and some
hypervisors copies from pinned memory have been seen to do nothing while they report success; every chunk is therefore
read back through the device before it is used.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqmoe.core._native import CudaContext, MappedMemory, PinningError

__all__ = ["MappedMemory", "PinnedLimits", "PinningError", "map_memory", "pinned_limits"]


@dataclass(frozen=True, slots=True)
class PinnedLimits:
    """What may stand in the way of pinning memory, in bytes; None where there is no limit or nothing tells it.

    ``locked`` is RLIMIT_MEMLOCK, which some containers hold the driver to; ``available`` is Linux's estimate of what
    can be used without swapping, ``total`` all memory; ``wsl`` says whether this is Windows' subsystem for Linux.
    """

    locked: int | None
    available: int | None
    total: int | None
    wsl: bool

    def __str__(self) -> str:
        locked = "any amount" if self.locked is None else _amount(self.locked)
        text = f"a process may lock {locked} here (ulimit -l)"
        if self.available is not None:
            text += f", {_amount(self.available)} of {_amount(self.total or 0)} are available"
        if self.wsl:
            text += "; WSL2 pins only part of its memory: raise `memory` in .wslconfig, or use Linux itself"
        return text


def pinned_limits(proc: Path = Path("/proc")) -> PinnedLimits:
    """What this process and system allow now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    fields = dict(line.split(":", 1) for line in _text(proc / "meminfo").splitlines() if ":" in line)
    available, total = (_kilobytes(fields.get(name, "")) for name in ("MemAvailable", "MemTotal"))
    wsl = "microsoft" in _text(proc / "version").lower()
    return PinnedLimits(None if soft == resource.RLIM_INFINITY else soft, available, total, wsl)


def map_memory(context: CudaContext, sizes: Sequence[int]) -> MappedMemory:
    """Zeroed memory in one chunk for each of ``sizes`` (bytes), pinned, mapped, and checked through the device.

    Of the result, ``host`` and ``device`` are each chunk's addresses, ``bytes(i)`` is chunk i as uint8 array, which
    keeps the memory alive, as the object itself does; kernels and copies must have ended before both go.

    Raises ``PinningError`` (a ``CudaError``; ``pinned`` is how many bytes were) with the limits of the system where the
    memory cannot be pinned, or where the device reads something else than was written.
    """
    try:
        memory = MappedMemory(context, list(sizes))
    except PinningError as error:
        reason = f"{_amount(error.pinned)} of {_amount(sum(sizes))} could be pinned: {error}; {pinned_limits()}"
        raise _pinning_error(reason, error.call, error.name, error.code, error.pinned) from error
    unfaithful = memory.first_unfaithful()
    if unfaithful is not None:
        reason = (
            f"the device reads other bytes than were written to pinned memory, in chunk {unfaithful} of {len(sizes)}: "
            "the system drops copies silently, as WSL2 and some hypervisors do; update its driver, or use Linux itself"
        )
        raise _pinning_error(reason, "", "", 0, sum(sizes))
    return memory


def _pinning_error(reason: str, call: str, name: str, code: int, pinned: int) -> PinningError:
    error = PinningError(reason)
    error.call, error.name, error.code, error.pinned = call, name, code, pinned
    return error


def _amount(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**29 else f"{size / 2**20:.1f} MiB"


def _kilobytes(field: str) -> int | None:
    number = field.strip().removesuffix(" kB")
    return int(number) * 1024 if number.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
