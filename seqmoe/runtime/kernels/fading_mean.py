"""CacheScore on the device: the mean of a forecast's rows, later ones counting less (paper, section 7.1)."""

from __future__ import annotations

import torch

from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.table import DeviceTable

_BLOCK = 1024


@triton.jit
def _fading_mean(
    probability: Pointer,
    weights: Pointer,
    out: Pointer,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(ROWS):
        total += tl.load(probability + row * SIZE + place, mask=place < SIZE, other=0.0) * tl.load(weights + row)
    tl.store(out + place, total, mask=place < SIZE)


@triton.jit(do_not_specialize=["layer"])
def _move_up(score: Pointer, later: Pointer, layer: Value, EXPERTS: tl.constexpr, EXPERT_BLOCK: tl.constexpr) -> None:
    expert = tl.arange(0, EXPERT_BLOCK)
    place = layer * EXPERTS + expert
    tl.store(score + place, tl.load(later + place, mask=expert < EXPERTS, other=0.0), mask=expert < EXPERTS)


def mean_call(probability: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> Call:
    """``out`` float32 [layers, experts] of ``probability`` [rows, layers, experts], of which ``weights`` [n] counts n.

    ``out`` may be layers of a larger array. With n = 0 it becomes 0.
    """
    size = probability[0].numel() if len(probability) else out.numel()
    if out.shape != probability.shape[1:] or len(weights) > len(probability) or not probability.is_contiguous():
        raise ValueError(f"{len(weights)} rows of {list(probability.shape)} for {list(out.shape)}")
    constants = {"SIZE": size, "ROWS": len(weights), "BLOCK": _BLOCK}
    arguments = {"probability": probability, "weights": weights, "out": out}
    return Call(_fading_mean, (triton.cdiv(size, _BLOCK),), arguments, constants, warps=4)


def move_up_call(table: DeviceTable, later: torch.Tensor, layer: int) -> Call:
    """The layer's event is over: its scores become those of ``later`` float32 [layers, experts]."""
    constants = {"EXPERTS": table.experts, "EXPERT_BLOCK": triton.next_power_of_2(table.experts)}
    return Call(_move_up, (1,), {"score": table.score, "later": later, "layer": layer}, constants, warps=1)
