"""Prefetch tasks from a forecast: the likeliest experts of some layers that are not resident, told to the worker."""

from __future__ import annotations

import torch

from seqmoe.core import control
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.order import ascending
from seqmoe.runtime.kernels.system_memory import release
from seqmoe.runtime.kernels.table import Counter, DeviceTable

_POSITION = tl.constexpr(control.POSITION)
_TASKS = tl.constexpr(control.TASKS)
_TAKEN = tl.constexpr(control.TAKEN)
_RING = tl.constexpr(control.tasks_at())
_WORDS = tl.constexpr(control.TASK_WORDS)
_COUNTER = tl.constexpr(int(Counter.TASKS))


@triton.jit(do_not_specialize=["first"])
def _dispatch(
    words: Pointer,
    probability: Pointer,
    slot_of: Pointer,
    progress: Pointer,
    counters: Pointer,
    first: Value,
    LAYERS: tl.constexpr,
    RANGE: tl.constexpr,
    RANGE_BLOCK: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    CHOICES: tl.constexpr,
    CAPACITY: tl.constexpr,
) -> None:
    layer = tl.arange(0, RANGE_BLOCK)
    expert = tl.arange(0, EXPERT_BLOCK)
    real = (layer < RANGE)[:, None] & (expert < EXPERTS)[None, :]
    likely = tl.load(probability + layer[:, None] * EXPERTS + expert[None, :], mask=real, other=0.0)
    position = tl.load(progress + _POSITION)
    tasks = tl.load(progress + _TASKS)
    counted = tl.load(counters + _COUNTER)
    limit = tl.load(progress + _TAKEN) + CAPACITY

    # The likeliest first, of equals the lower expert: one number says both which and how likely. NaN is no chance.
    order = (ascending(likely) << 31) | (EXPERT_BLOCK - 1 - expert)[None, :].to(tl.int64)
    order = tl.where(real & (likely == likely), order, -1)
    deadline = (position // LAYERS + 1) * LAYERS + first + layer
    told = tasks
    for _ in range(CHOICES):
        best = tl.max(order, axis=1)
        choice = (EXPERT_BLOCK - 1 - (best & 2147483647)).to(tl.int32)
        mine = order == best[:, None]
        order = tl.where(mine, -1, order)
        confidence = tl.sum(tl.where(mine & real, likely, 0.0), axis=1)
        key = (first + layer) * EXPERTS + choice
        wanted = (layer < RANGE) & (best >= 0) & (deadline > position + 1)
        wanted = wanted & (tl.load(slot_of + key, mask=wanted, other=0) < 0)
        number = told + tl.cumsum(wanted.to(tl.int64), axis=0) - 1
        wanted = wanted & (number < limit)
        entry = words + _RING + _WORDS * (number & (CAPACITY - 1))
        tl.store(entry, key.to(tl.int64), mask=wanted)
        tl.store(entry + 1, deadline, mask=wanted)
        tl.store(entry + 2, confidence.to(tl.int32, bitcast=True).to(tl.int64) & 4294967295, mask=wanted)
        told += tl.sum(wanted.to(tl.int64), axis=0)
    if told > tasks:
        tl.store(progress + _TASKS, told)
        tl.store(counters + _COUNTER, counted + told - tasks)
        release(words + _TASKS, told)


def call(
    words: torch.Tensor, table: DeviceTable, capacity: int, probability: torch.Tensor, first: int, choices: int
) -> Call:
    """See `launch`."""
    layers, experts = probability.shape
    if experts != table.experts or not 0 <= first <= table.layers - layers or not 0 < choices <= experts:
        raise ValueError(
            f"probability {list(probability.shape)} from layer {first}, {choices} of each: "
            f"the table has {table.layers} layers of {table.experts} experts"
        )
    arguments = {
        "words": words, "probability": probability, "slot_of": table.slot_of, "progress": table.progress,
        "counters": table.counters, "first": first,
    }  # fmt: skip
    constants = {
        "LAYERS": table.layers,
        "RANGE": layers,
        "RANGE_BLOCK": triton.next_power_of_2(layers),
        "EXPERTS": experts,
        "EXPERT_BLOCK": triton.next_power_of_2(experts),
        "CHOICES": choices,
        "CAPACITY": capacity,
    }
    size = constants["RANGE_BLOCK"] * constants["EXPERT_BLOCK"]
    return Call(_dispatch, (1,), arguments, constants, warps=min(max(size // 512, 4), 16))


def launch(
    words: torch.Tensor, table: DeviceTable, capacity: int, probability: torch.Tensor, first: int, choices: int
) -> None:
    """A task for each of the ``choices`` likeliest experts of layers ``first``... that has no slot (paper, 6.1).

    ``probability`` float32 [layers of the range, experts] is row 0 of a forecast, for the step after the one in
    progress. What is due by the next layer is left out, and what the ring has no room for: the worker reads in time,
    or not at all.
    """
    call(words, table, capacity, probability, first, choices).launch()
