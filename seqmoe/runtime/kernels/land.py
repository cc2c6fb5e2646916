"""A layer begins: the device moves to the next position and takes in the transfers that have landed since."""

from __future__ import annotations

import torch

from seqmoe.core import control
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.order import COMPUTE, EMPTY, FETCH
from seqmoe.runtime.kernels.system_memory import LANES, acquire, release, tell
from seqmoe.runtime.kernels.table import Counter, DeviceTable

_LANES = tl.constexpr(LANES)
_POSITION = tl.constexpr(control.POSITION)
_LANDINGS = tl.constexpr(control.LANDINGS)
_CONSUMED = tl.constexpr(control.CONSUMED)
_TAKEN = tl.constexpr(control.TAKEN)
_FAILED = tl.constexpr(control.FAILED)
_WORDS = tl.constexpr(control.LANDING_WORDS)
_LANDED = tl.constexpr(int(Counter.LANDED))
_LATE = tl.constexpr(int(Counter.LATE))
_BARREN = tl.constexpr(int(Counter.BARREN))
_STALE = tl.constexpr(int(Counter.STALE))


@triton.jit
def _land(
    words: Pointer,
    state: Pointer,
    owner: Pointer,
    tag: Pointer,
    slot_of: Pointer,
    progress: Pointer,
    counters: Pointer,
    RING: tl.constexpr,
    CAPACITY: tl.constexpr,
) -> None:
    position = tl.load(progress + _POSITION) + 1
    consumed = tl.load(progress + _CONSUMED)
    tell(words + _POSITION, position)
    lane = tl.arange(0, _LANES)
    host = acquire(words + _LANDINGS, _TAKEN - _LANDINGS + 1)
    landings = tl.sum(tl.where(lane == 0, host, 0), axis=0)
    failed = tl.sum(tl.where(lane == _FAILED - _LANDINGS, host, 0), axis=0)
    taken = tl.sum(tl.where(lane == _TAKEN - _LANDINGS, host, 0), axis=0)

    here = consumed + lane < landings
    entry = words + RING + _WORDS * ((consumed + lane) & (CAPACITY - 1))
    slot = tl.load(entry, mask=here, other=-1, volatile=True)
    told = tl.load(entry + 1, mask=here, other=-1, volatile=True)
    key = tl.load(entry + 2, mask=here, other=-1, volatile=True)

    expected = tl.load(tag + slot, mask=here, other=-1)
    fetching = tl.load(state + slot, mask=here, other=EMPTY) == FETCH
    resident = tl.load(slot_of + key, mask=here & (key >= 0), other=-1) >= 0
    counts = here & fetching & (expected == told)
    # Of equal ones the first counts, as if they were taken in one after another.
    earlier = counts[None, :] & (lane[None, :] < lane[:, None])
    counts = counts & (tl.sum((earlier & (slot[None, :] == slot[:, None])).to(tl.int32), axis=1) == 0)
    earlier = counts[None, :] & (lane[None, :] < lane[:, None]) & (key >= 0)[None, :]
    resident = resident | (tl.sum((earlier & (key[None, :] == key[:, None])).to(tl.int32), axis=1) > 0)
    arrived = counts & (key >= 0) & (resident == 0)

    tl.debug_barrier()
    tl.store(state + slot, tl.where(arrived, COMPUTE, EMPTY).to(tl.uint8), mask=counts)
    tl.store(owner + slot, tl.where(arrived, key, -1).to(tl.int32), mask=counts)
    tl.store(tag + slot, tl.full([_LANES], -1, tl.int64), mask=counts)
    tl.store(slot_of + key, slot.to(tl.int32), mask=arrived)

    count = tl.sum(here.to(tl.int64), axis=0)
    tl.store(progress + _POSITION, position)
    tl.store(progress + _CONSUMED, consumed + count)
    tl.store(progress + _TAKEN, taken)
    tl.store(progress + _FAILED, failed)
    if count > 0:
        _count(counters + _LANDED, arrived)
        _count(counters + _LATE, counts & (key >= 0) & resident)
        _count(counters + _BARREN, counts & (key < 0))
        _count(counters + _STALE, here & (counts == 0))
        release(words + _CONSUMED, consumed + count)


@triton.jit
def _count(counter: Pointer, which: Value) -> None:
    tl.store(counter, tl.load(counter) + tl.sum(which.to(tl.int64), axis=0))


def call(words: torch.Tensor, table: DeviceTable, capacity: int) -> Call:
    """``words`` int64 is the control region as the device sees it, ``capacity`` that of its rings."""
    arguments = {
        "words": words, "state": table.state, "owner": table.owner, "tag": table.tag, "slot_of": table.slot_of,
        "progress": table.progress, "counters": table.counters,
    }  # fmt: skip
    constants = {"RING": control.landings_at(capacity), "CAPACITY": capacity}
    return Call(_land, (1,), arguments, constants, warps=1)


def launch(words: torch.Tensor, table: DeviceTable, capacity: int) -> None:
    """Once at the beginning of every MoE layer of a decode step, in layer order.

    A landing counts if its tag is the slot's and the slot is in FETCH: its expert is in COMPUTE then, or the slot is
    EMPTY if none was brought or it has been loaded meanwhile. At most `LANES` at a time, one for each lane of the only
    warp; the rest follow a layer later.
    """
    call(words, table, capacity).launch()
