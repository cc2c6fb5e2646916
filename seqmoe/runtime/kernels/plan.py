"""Which slots a layer's experts are in, and which are to be loaded into whose place: all decided on the device."""

from __future__ import annotations

import torch

from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.order import COMPUTE, FETCH, NO_SLOT, evicted_key, eviction_place, is_given_up
from seqmoe.runtime.kernels.table import Counter, DeviceTable, Misses

_EVENTS = tl.constexpr(int(Counter.EVENTS))
_HITS = tl.constexpr(int(Counter.HITS))
_MISSES = tl.constexpr(int(Counter.MISSES))
_EVICTIONS = tl.constexpr(int(Counter.EVICTIONS))
_GIVEN_UP = tl.constexpr(int(Counter.GIVEN_UP))
_UNPLACED = tl.constexpr(int(Counter.UNPLACED))


# One program, in three parts: it reads, it decides in registers, and after a barrier it writes. Nothing that it wrote
# is read again, so no thread can see another's half-done work.
@triton.jit(do_not_specialize=["layer", "slots"])
def _plan(
    top_k: Pointer,
    slot_ids: Pointer,
    miss_key: Pointer,
    miss_slot: Pointer,
    miss_count: Pointer,
    state: Pointer,
    owner: Pointer,
    slot_of: Pointer,
    score: Pointer,
    counters: Pointer,
    layer: Value,
    slots: Value,
    ROWS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    SLOT_BLOCK: tl.constexpr,
) -> None:
    row = tl.arange(0, ROW_BLOCK)
    expert = tl.arange(0, EXPERT_BLOCK)
    slot = tl.arange(0, SLOT_BLOCK)
    first = layer * EXPERTS
    chosen = tl.load(top_k + row, mask=row < ROWS, other=-1).to(tl.int32)
    place = tl.load(slot_of + first + expert, mask=expert < EXPERTS, other=-1)
    held = tl.load(state + slot, mask=slot < slots, other=FETCH)
    key = tl.load(owner + slot, mask=slot < slots, other=-1)
    worth = tl.load(score + key, mask=key >= 0, other=0.0)

    needed = tl.sum((expert[:, None] == chosen[None, :]).to(tl.int32), axis=1) > 0
    hit = needed & (place >= 0)
    miss = needed & (place < 0)
    of_layer = (key >= first) & (key < first + EXPERTS)
    wanted = tl.gather(needed.to(tl.int32), tl.where(of_layer, key - first, 0), 0) > 0
    order = tl.where(of_layer & wanted, NO_SLOT, eviction_place(held, worth, key, slot))

    misses = tl.sum(miss.to(tl.int32), axis=0)
    rank = tl.cumsum(miss.to(tl.int32), axis=0) - 1
    evicted = tl.full([EXPERT_BLOCK], -1, tl.int32)
    given_up = misses * 0
    for index in range(misses):
        least = tl.min(order, axis=0)
        taken = tl.min(tl.where(order == least, slot, SLOT_BLOCK), axis=0)
        mine = miss & (rank == index) & (least < NO_SLOT)
        place = tl.where(mine, taken, place)
        evicted = tl.where(mine, evicted_key(least), evicted)
        given_up += is_given_up(least)
        order = tl.where(slot == taken, NO_SLOT, order)
    placed = miss & (place >= 0)

    tl.debug_barrier()
    tl.store(slot_of + evicted, tl.full([EXPERT_BLOCK], -1, tl.int32), mask=evicted >= 0)
    tl.store(slot_of + first + expert, place, mask=placed)
    tl.store(owner + place, first + expert, mask=placed)
    tl.store(state + place, tl.full([EXPERT_BLOCK], COMPUTE, tl.uint8), mask=needed & (place >= 0))
    tl.store(miss_key + rank, first + expert, mask=placed)
    tl.store(miss_slot + rank, place, mask=placed)
    found = tl.gather(place, tl.where(chosen >= 0, chosen, 0), 0)
    tl.store(slot_ids + row, tl.where(chosen >= 0, found, -1), mask=row < ROWS)

    count = tl.sum(placed.to(tl.int32), axis=0)
    tl.store(miss_count, count)
    _add(counters + _EVENTS, count * 0 + 1)
    _add(counters + _HITS, tl.sum(hit.to(tl.int32), axis=0))
    _add(counters + _MISSES, misses)
    _add(counters + _EVICTIONS, tl.sum((evicted >= 0).to(tl.int32), axis=0))
    _add(counters + _GIVEN_UP, given_up)
    _add(counters + _UNPLACED, misses - count)


@triton.jit
def _add(counter: Pointer, number: Value) -> None:
    tl.store(counter, tl.load(counter) + number.to(tl.int64))


def call(table: DeviceTable, layer: int, top_k_index: torch.Tensor, slot_ids: torch.Tensor, misses: Misses) -> Call:
    """See `launch`."""
    rows = top_k_index.numel()
    if slot_ids.shape != top_k_index.shape or len(misses.key) < rows:
        raise ValueError(f"slot_ids {list(slot_ids.shape)} and {len(misses.key)} misses: {rows} experts were chosen")
    arguments = {
        "top_k": top_k_index, "slot_ids": slot_ids, "miss_key": misses.key, "miss_slot": misses.slot,
        "miss_count": misses.count, "state": table.state, "owner": table.owner,
        "slot_of": table.slot_of, "score": table.score, "counters": table.counters, "layer": layer,
        "slots": table.slots,
    }  # fmt: skip
    block = triton.next_power_of_2(table.slots)
    constants = {
        "ROWS": rows,
        "ROW_BLOCK": triton.next_power_of_2(rows),
        "EXPERTS": table.experts,
        "EXPERT_BLOCK": triton.next_power_of_2(table.experts),
        "SLOT_BLOCK": block,
    }
    # Eight slots a thread: their places take 16 registers.
    return Call(_plan, (1,), arguments, constants, warps=min(max(block // 256, 4), 32))


def launch(table: DeviceTable, layer: int, top_k_index: torch.Tensor, slot_ids: torch.Tensor, misses: Misses) -> None:
    """After a layer's routing and `land`: the layer's experts are in COMPUTE, those missing are listed in ``misses``.

    ``top_k_index`` int32 or int64 [tokens, choices]; writes ``slot_ids`` int32 of the same shape. Misses are listed by
    ascending expert and take EMPTY slots first, then the USED one of the lowest score, ties by the lower key, then
    landed prefetches that this event does not need. Where all slots are lent or needed, a slot id is -1 and
    `Counter.UNPLACED` counts it.
    """
    call(table, layer, top_k_index, slot_ids, misses).launch()
