"""Slots for the prefetch worker: a few are always lent, so that it never waits for one when it has chosen a task."""

from __future__ import annotations

import torch

from seqmoe.core import control
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.order import COMPUTE, FETCH, NO_SLOT, eviction_place
from seqmoe.runtime.kernels.system_memory import release
from seqmoe.runtime.kernels.table import Counter, DeviceTable

_LENT = tl.constexpr(control.LENT)
_WORDS = tl.constexpr(control.LENT_WORDS)
_COUNTER = tl.constexpr(int(Counter.LENT))


@triton.jit(do_not_specialize=["want", "slots"])
def _lend(
    words: Pointer,
    state: Pointer,
    owner: Pointer,
    tag: Pointer,
    slot_of: Pointer,
    score: Pointer,
    progress: Pointer,
    counters: Pointer,
    want: Value,
    slots: Value,
    SLOT_BLOCK: tl.constexpr,
    RING: tl.constexpr,
    CAPACITY: tl.constexpr,
) -> None:
    slot = tl.arange(0, SLOT_BLOCK)
    real = slot < slots
    held = tl.load(state + slot, mask=real, other=COMPUTE)
    key = tl.load(owner + slot, mask=real, other=-1)
    worth = tl.load(score + key, mask=key >= 0, other=0.0)
    lent = tl.load(progress + _LENT)
    counted = tl.load(counters + _COUNTER)

    order = tl.where(held == COMPUTE, NO_SLOT, eviction_place(held, worth, key, slot))
    free = tl.sum((order < NO_SLOT).to(tl.int32), axis=0)
    lacking = want - tl.sum((held == FETCH).to(tl.int32), axis=0)
    count = tl.maximum(tl.minimum(lacking, free), 0)
    rank = tl.full([SLOT_BLOCK], -1, tl.int32)
    for index in range(count):
        least = tl.min(order, axis=0)
        mine = order == least
        rank = tl.where(mine, index, rank)
        order = tl.where(mine, NO_SLOT, order)

    if count > 0:
        mine = rank >= 0
        # Read again, rather than kept in registers over the search.
        key = tl.load(owner + slot, mask=mine, other=-1, volatile=True)
        tl.debug_barrier()
        tl.store(slot_of + key, tl.full([SLOT_BLOCK], -1, tl.int32), mask=mine & (key >= 0))
        tl.store(state + slot, tl.full([SLOT_BLOCK], FETCH, tl.uint8), mask=mine)
        tl.store(owner + slot, tl.full([SLOT_BLOCK], -1, tl.int32), mask=mine)
        tl.store(tag + slot, lent + rank, mask=mine)
        entry = words + RING + _WORDS * ((lent + rank) & (CAPACITY - 1))
        tl.store(entry, slot.to(tl.int64), mask=mine)
        tl.store(entry + 1, lent + rank, mask=mine)
        tl.store(progress + _LENT, lent + count)
        tl.store(counters + _COUNTER, counted + count)
        release(words + _LENT, lent + count)


def call(words: torch.Tensor, table: DeviceTable, capacity: int, want: int) -> Call:
    """See `launch`."""
    if not 0 <= want <= min(capacity, table.slots - 1):
        raise ValueError(f"want = {want}: from 0 to the rings' capacity of {capacity}, less than {table.slots} slots")
    block = triton.next_power_of_2(table.slots)
    arguments = {
        "words": words, "state": table.state, "owner": table.owner, "tag": table.tag, "slot_of": table.slot_of,
        "score": table.score, "progress": table.progress, "counters": table.counters, "want": want,
        "slots": table.slots,
    }  # fmt: skip
    constants = {"SLOT_BLOCK": block, "RING": control.lent_at(capacity), "CAPACITY": capacity}
    return Call(_lend, (1,), arguments, constants, warps=min(max(block // 256, 4), 32))


def launch(words: torch.Tensor, table: DeviceTable, capacity: int, want: int) -> None:
    """Lend EMPTY slots, then USED ones of the lowest score, until ``want`` are in FETCH: each with a tag of its own.

    Whoever chooses ``want`` leaves the pool the slots that one event can need, tokens * choices.
    """
    call(words, table, capacity, want).launch()
