"""Misses are copied by the device itself, out of mapped host memory, from a list that it made itself (paper, D4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqmoe.core import control
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.system_memory import tell
from seqmoe.runtime.kernels.table import DeviceTable, Misses

# Bytes of one access, and of all accesses of a program between two looks at the list.
ACCESS = 16
TILE = 16384
# 32 programs have half a megabyte on the way at a time, several times what PCIe 5.0 x16 holds (50 GB/s x 1.5 us).
PROGRAMS = 32

_BEGUN = tl.constexpr(control.MISSES_BEGUN)
_DONE = tl.constexpr(control.MISSES_DONE)


@dataclass(frozen=True, slots=True, eq=False)
class PoolParts:
    """Where the parts of experts lie: each expert's in host memory, each slot's on the device.

    ``source`` int64 [parts, keys] are addresses as the device sees them, since a host pool lies in chunks; ``target``
    int64 [parts] are those of slot 0, a slot's bytes after another's. ``sizes`` are a part's bytes, each a multiple of
    `ACCESS`, as are all addresses.
    """

    source: torch.Tensor
    target: torch.Tensor
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.source.shape[0] != len(self.sizes) or self.target.shape != (len(self.sizes),):
            raise ValueError(f"source {list(self.source.shape)}, target {list(self.target.shape)}: {self.sizes} parts")
        if any(size <= 0 or size % ACCESS for size in self.sizes):
            raise ValueError(f"sizes = {self.sizes}: each part must be a multiple of {ACCESS} bytes")


@triton.jit
def _copy_misses(
    words: Pointer,
    progress: Pointer,
    miss_key: Pointer,
    miss_slot: Pointer,
    miss_count: Pointer,
    finished: Pointer,
    source: Pointer,
    target: Pointer,
    KEYS: tl.constexpr,
    PARTS: tl.constexpr,
    SIZES: tl.constexpr,
    LANES: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    count = tl.load(miss_count)
    if count > 0:
        if program == 0:
            begun = tl.load(progress + _BEGUN) + 1
            tl.store(progress + _BEGUN, begun)
            tell(words + _BEGUN, begun)
        for part in tl.static_range(PARTS):
            _copy_part(source + part * KEYS, tl.load(target + part), miss_key, miss_slot, count, SIZES[part], LANES)
        tl.debug_barrier()
        if tl.atomic_add(finished, 1, sem="acq_rel", scope="gpu") == programs - 1:
            tl.store(finished, 0)
            done = tl.load(progress + _DONE) + 1
            tl.store(progress + _DONE, done)
            tell(words + _DONE, done)


@triton.jit
def _copy_part(
    source: Pointer,
    target: Value,
    miss_key: Pointer,
    miss_slot: Pointer,
    count: Value,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
) -> None:
    """This program's tiles of one part of all misses."""
    elements: tl.constexpr = SIZE // 4
    tiles: tl.constexpr = (elements + LANES - 1) // LANES
    lane = tl.arange(0, LANES)
    for tile in range(tl.program_id(0), count * tiles, tl.num_programs(0)):
        key = tl.load(miss_key + tile // tiles)
        slot = tl.load(miss_slot + tile // tiles).to(tl.int64)
        start = tl.multiple_of(tl.load(source + key).to(tl.pointer_type(tl.int32)), 16)
        begin = tl.multiple_of((target + slot * SIZE).to(tl.pointer_type(tl.int32)), 16)
        element = tile % tiles * LANES + lane
        here = element < elements
        tl.store(begin + element, tl.load(start + element, mask=here, cache_modifier=".cg"), mask=here)


def call(words: torch.Tensor, table: DeviceTable, misses: Misses, parts: PoolParts, programs: int = PROGRAMS) -> Call:
    """See `launch`."""
    arguments = {
        "words": words, "progress": table.progress, "miss_key": misses.key, "miss_slot": misses.slot,
        "miss_count": misses.count, "finished": misses.finished, "source": parts.source, "target": parts.target,
    }  # fmt: skip
    constants = {
        "KEYS": parts.source.shape[1],
        "PARTS": len(parts.sizes),
        "SIZES": parts.sizes,
        "LANES": min(TILE, triton.next_power_of_2(max(parts.sizes))) // 4,
    }
    return Call(_copy_misses, (programs,), arguments, constants, warps=4)


def launch(words: torch.Tensor, table: DeviceTable, misses: Misses, parts: PoolParts, programs: int = PROGRAMS) -> None:
    """After `plan`: bring what it listed. While it does, the worker starts no transfer (`MISSES_BEGUN`)."""
    call(words, table, misses, parts, programs).launch()
