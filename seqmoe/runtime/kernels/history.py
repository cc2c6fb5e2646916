"""Scores by what has been used: the device's side of `seqmoe.runtime.retention`, one kernel before each plan."""

from __future__ import annotations

import torch

from seqmoe.core import control
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.table import DeviceTable

# Bits of a count that hold the recency, and the largest count, as in `seqmoe.runtime.retention.LeastFrequent`.
RECENCY_BITS = 17
MOST = 0x7F7F_FFFF >> RECENCY_BITS

_POSITION = tl.constexpr(control.POSITION)
_RECENCY_BITS = tl.constexpr(RECENCY_BITS)
_LATEST = tl.constexpr((1 << RECENCY_BITS) - 1)
_MOST = tl.constexpr(MOST)


@triton.jit(do_not_specialize=["layer"])
def _stamp(
    top_k: Pointer,
    score: Pointer,
    progress: Pointer,
    begin: Pointer,
    layer: Value,
    LAYERS: tl.constexpr,
    EXPERTS: tl.constexpr,
    ROWS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
) -> None:
    row = tl.arange(0, ROW_BLOCK)
    expert = tl.load(top_k + row, mask=row < ROWS, other=-1)
    now = tl.load(progress + _POSITION) - tl.load(begin) * LAYERS
    stamp = tl.zeros([ROW_BLOCK], tl.float32) + now.to(tl.float32)
    tl.store(score + layer * EXPERTS + expert, stamp, mask=expert >= 0)


@triton.jit(do_not_specialize=["layer"])
def _count(
    top_k: Pointer,
    score: Pointer,
    count: Pointer,
    recency: Pointer,
    progress: Pointer,
    base: Pointer,
    layer: Value,
    EXPERTS: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
) -> None:
    needed = is_needed(top_k, EXPERT_BLOCK, ROWS, ROW_BLOCK)
    place = layer * EXPERTS + tl.arange(0, EXPERT_BLOCK)
    total = tl.load(count + place, mask=needed, other=0) + 1
    now = tl.zeros([EXPERT_BLOCK], tl.int64) + tl.load(progress + _POSITION) - tl.load(base)
    tl.store(count + place, total, mask=needed)
    tl.store(recency + place, now, mask=needed)
    recent = tl.minimum(now, _LATEST)
    bits = (tl.minimum(total, _MOST) << _RECENCY_BITS) | recent
    tl.store(score + place, bits.to(tl.int32).to(tl.float32, bitcast=True), mask=needed)


@triton.jit(do_not_specialize=["layer"])
def _fade(
    top_k: Pointer,
    score: Pointer,
    value: Pointer,
    progress: Pointer,
    begin: Pointer,
    rate: Pointer,
    layer: Value,
    LAYERS: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
) -> None:
    needed = is_needed(top_k, EXPERT_BLOCK, ROWS, ROW_BLOCK)
    place = layer * EXPERTS + tl.arange(0, EXPERT_BLOCK)
    steps = (tl.load(progress + _POSITION) - tl.load(begin) * LAYERS).to(tl.float64) / LAYERS
    now = tl.zeros([EXPERT_BLOCK], tl.float64) - steps * tl.load(rate)
    old = tl.load(value + place, mask=needed, other=0.0)
    greater = tl.maximum(old, now)
    # Of log(exp(old) + exp(now)), old may be -inf.
    total = greater + tl.log(1.0 + tl.exp(tl.minimum(old, now) - greater))
    tl.store(value + place, total, mask=needed)
    tl.store(score + place, total.to(tl.float32), mask=needed)


@triton.jit
def is_needed(top_k: Pointer, EXPERT_BLOCK: tl.constexpr, ROWS: tl.constexpr, ROW_BLOCK: tl.constexpr) -> Value:
    """Whether each expert, bool [EXPERT_BLOCK], is among the ROWS of ``top_k``."""
    row = tl.arange(0, ROW_BLOCK)
    chosen = tl.load(top_k + row, mask=row < ROWS, other=-1).to(tl.int32)
    return tl.sum((tl.arange(0, EXPERT_BLOCK)[:, None] == chosen[None, :]).to(tl.int32), axis=1) > 0


def stamp_call(table: DeviceTable, layer: int, top_k_index: torch.Tensor, begin: torch.Tensor) -> Call:
    """LRU: the event's position since step ``begin``, int64 [1], for the experts that it needs."""
    constants = {"LAYERS": table.layers, "EXPERTS": table.experts, **row_blocks(top_k_index)}
    arguments = {"top_k": top_k_index, "score": table.score, "progress": table.progress, "begin": begin, "layer": layer}
    return Call(_stamp, (1,), arguments, constants, warps=1)


def count_call(
    table: DeviceTable,
    layer: int,
    top_k_index: torch.Tensor,
    count: torch.Tensor,
    recency: torch.Tensor,
    base: torch.Tensor,
) -> Call:
    """LFU: one more, and when, since position ``base`` int64 [1]; ``count`` and ``recency`` int64 [layers, experts]."""
    arguments = {
        "top_k": top_k_index, "score": table.score, "count": count, "recency": recency, "progress": table.progress,
        "base": base, "layer": layer,
    }  # fmt: skip
    constants = {"EXPERTS": table.experts, **expert_block(table), **row_blocks(top_k_index)}
    return Call(_count, (1,), arguments, constants, warps=4)


def fade_call(
    table: DeviceTable,
    layer: int,
    top_k_index: torch.Tensor,
    value: torch.Tensor,
    begin: torch.Tensor,
    rate: torch.Tensor,
) -> Call:
    """LFU with decay: a use as of now is added to ``value`` float64 [layers, experts], by logarithms."""
    arguments = {
        "top_k": top_k_index, "score": table.score, "value": value, "progress": table.progress, "begin": begin,
        "rate": rate, "layer": layer,
    }  # fmt: skip
    constants = {"LAYERS": table.layers, "EXPERTS": table.experts, **expert_block(table), **row_blocks(top_k_index)}
    return Call(_fade, (1,), arguments, constants, warps=4)


def row_blocks(top_k_index: torch.Tensor) -> dict[str, int]:
    """ROWS and the ROW_BLOCK that holds them."""
    return {"ROWS": top_k_index.numel(), "ROW_BLOCK": triton.next_power_of_2(top_k_index.numel())}


def expert_block(table: DeviceTable) -> dict[str, int]:
    """The EXPERT_BLOCK that holds a layer's experts."""
    return {"EXPERT_BLOCK": triton.next_power_of_2(table.experts)}
