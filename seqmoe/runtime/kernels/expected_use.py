"""Expected use on the device, as `seqmoe.runtime.expected_use` has it: forecasts, and frequencies beyond them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from seqmoe.core import control
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.history import expert_block, is_needed, row_blocks
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.table import DeviceTable

_POSITION = tl.constexpr(control.POSITION)


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedUseState:
    """What is kept between events, float64 but for two steps, int64 [1].

    ``uses`` [decays, layers, experts] are frequencies; of the last forecast, ``later`` and ``later_unused`` [layers,
    experts] are what it adds once the layer's next event is over, and the chance of no use within it, and ``tail``
    [discounts] weighs what lies beyond. Constants: ``decays`` and ``frequency`` [decays], ``discounts`` [discounts],
    and ``others`` [3], the weights of no use and of 1, and the logarithm by which values fade in a step. The request
    began with the step ``begin``; scores are told as of ``origin``.
    """

    uses: torch.Tensor
    later: torch.Tensor
    later_unused: torch.Tensor
    tail: torch.Tensor
    decays: torch.Tensor
    frequency: torch.Tensor
    discounts: torch.Tensor
    others: torch.Tensor
    begin: torch.Tensor
    origin: torch.Tensor

    @property
    def arguments(self) -> dict[str, torch.Tensor]:
        """The tensors by name, as the kernels take them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def sizes(self) -> dict[str, int]:
        """How many decays and discounts there are."""
        return {"DECAYS": len(self.decays), "DISCOUNTS": len(self.discounts)}


@triton.jit
def _history(
    uses: Pointer,
    tail: Pointer,
    decays: Pointer,
    frequency: Pointer,
    discounts: Pointer,
    place: Value,
    real: Value,
    needed: Value,
    age: Value,
    UPDATE: tl.constexpr,
    SIZE: tl.constexpr,
    DECAYS: tl.constexpr,
    DISCOUNTS: tl.constexpr,
    KEPT: tl.constexpr,
) -> tuple[Value, Value]:
    """What history says of ``place``, after an event if UPDATE: the next use beyond the forecast, and frequencies."""
    beyond = place.to(tl.float64) * 0.0
    value = beyond
    chance = beyond
    for index in tl.static_range(DECAYS):
        decay = tl.load(decays + index)
        share = tl.load(uses + index * SIZE + place, mask=real, other=0.0)
        if UPDATE:
            share = share * decay + tl.where(needed, 1.0 - decay, 0.0)
            tl.store(uses + index * SIZE + place, share, mask=real)
        share = share / (1.0 - tl.exp(age * tl.log(decay)))
        value += share * tl.load(frequency + index)
        if index == KEPT:
            chance = tl.minimum(tl.maximum(share, 1e-3), 0.999)
    for index in tl.static_range(DISCOUNTS):
        beyond += tl.load(tail + index) * (chance / (1.0 - tl.load(discounts + index) * (1.0 - chance)))
    return beyond, value


@triton.jit(do_not_specialize=["layer"])
def _note_use(
    top_k: Pointer,
    score: Pointer,
    progress: Pointer,
    uses: Pointer,
    later: Pointer,
    later_unused: Pointer,
    tail: Pointer,
    decays: Pointer,
    frequency: Pointer,
    discounts: Pointer,
    others: Pointer,
    begin: Pointer,
    origin: Pointer,
    layer: Value,
    LAYERS: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    DECAYS: tl.constexpr,
    DISCOUNTS: tl.constexpr,
    KEPT: tl.constexpr,
) -> None:
    expert = tl.arange(0, EXPERT_BLOCK)
    real = expert < EXPERTS
    place = layer * EXPERTS + expert
    needed = is_needed(top_k, EXPERT_BLOCK, ROWS, ROW_BLOCK)
    step = tl.load(progress + _POSITION) // LAYERS
    age = (step - tl.load(begin) + 1).to(tl.float64)
    now = (step - tl.load(origin) + 1).to(tl.float64)
    beyond, value = _history(
        uses, tail, decays, frequency, discounts, place, real, needed, age,
        True, LAYERS * EXPERTS, DECAYS, DISCOUNTS, KEPT,
    )  # fmt: skip
    value += tl.load(later + place, mask=real, other=0.0)
    value += tl.load(later_unused + place, mask=real, other=0.0) * beyond
    when = (now + layer.to(tl.float64) / LAYERS) * tl.load(others + 2)
    tl.store(score + place, (tl.log(tl.maximum(value, 1e-9)) + when).to(tl.float32), mask=real)


@triton.jit
def _expect(
    probability: Pointer,
    ahead: Pointer,
    others: Pointer,
    place: Value,
    real: Value,
    STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
) -> tuple[Value, Value]:
    """Of a forecast's rows: their part of the value, and the chance of no use within them."""
    unused = place.to(tl.float64) * 0.0 + 1.0
    value = unused * tl.load(others + 1)
    for row in range(ROWS):
        chance = tl.load(probability + row * STRIDE + place, mask=real, other=0.0).to(tl.float64)
        value += tl.load(ahead + row) * (chance * unused)
        unused *= 1.0 - chance
    return value + tl.load(others) * unused, unused


@triton.jit(do_not_specialize=["first"])
def _foresee(
    probability: Pointer,
    ahead: Pointer,
    tail_now: Pointer,
    tail_later: Pointer,
    score: Pointer,
    progress: Pointer,
    uses: Pointer,
    later: Pointer,
    later_unused: Pointer,
    tail: Pointer,
    decays: Pointer,
    frequency: Pointer,
    discounts: Pointer,
    others: Pointer,
    begin: Pointer,
    origin: Pointer,
    first: Value,
    LAYERS: tl.constexpr,
    RANGE: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    NOW: tl.constexpr,
    LATER: tl.constexpr,
    DECAYS: tl.constexpr,
    DISCOUNTS: tl.constexpr,
    KEPT: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    layer = first + index
    expert = tl.arange(0, EXPERT_BLOCK)
    real = expert < EXPERTS
    place = layer * EXPERTS + expert
    of_range = index * EXPERTS + expert
    STRIDE: tl.constexpr = RANGE * EXPERTS
    step = tl.load(progress + _POSITION) // LAYERS
    age = (step - tl.load(begin) + 1).to(tl.float64)
    now = (step - tl.load(origin) + 1).to(tl.float64)
    value, unused = _expect(probability, ahead, others, of_range, real, STRIDE, NOW)
    beyond, history = _history(
        uses, tail_now, decays, frequency, discounts, place, real, real, age,
        False, LAYERS * EXPERTS, DECAYS, DISCOUNTS, KEPT,
    )  # fmt: skip
    total = value + unused * beyond + history
    when = (now + layer.to(tl.float64) / LAYERS) * tl.load(others + 2)
    tl.store(score + place, (tl.log(tl.maximum(total, 1e-9)) + when).to(tl.float32), mask=real)

    value, unused = _expect(probability + STRIDE, ahead, others, of_range, real, STRIDE, LATER)
    tl.store(later + place, value, mask=real)
    tl.store(later_unused + place, unused, mask=real)
    if index == 0:
        for each in tl.static_range(DISCOUNTS):
            tl.store(tail + each, tl.load(tail_later + each))


def used_call(table: DeviceTable, layer: int, top_k_index: torch.Tensor, state: ExpectedUseState, kept: int) -> Call:
    """An event is over for the scores: one more step of history; ``kept`` is the decay that chances are taken from."""
    arguments = {
        "top_k": top_k_index, "score": table.score, "progress": table.progress, **state.arguments, "layer": layer,
    }  # fmt: skip
    constants = {
        "LAYERS": table.layers, "EXPERTS": table.experts, **expert_block(table), **row_blocks(top_k_index),
        **state.sizes, "KEPT": kept,
    }  # fmt: skip
    return Call(_note_use, (1,), arguments, constants, warps=4)


def forecast_call(
    table: DeviceTable,
    first: int,
    probability: torch.Tensor,
    steps: int | None,
    ahead: torch.Tensor,
    ahead_by: torch.Tensor,
    state: ExpectedUseState,
    kept: int,
) -> Call:
    """``probability`` float32 [rows, layers, experts] of layers ``first``..., of which ``steps`` rows count.

    ``ahead_by`` float64 [n, discounts] are the weights of a next use in so many steps, ``ahead`` [n] their sums.
    """
    rows, layers, _ = probability.shape
    now, later = (min(count, rows if steps is None else steps) for count in (rows, max(rows - 1, 0)))
    arguments = {
        "probability": probability, "ahead": ahead, "tail_now": ahead_by[now], "tail_later": ahead_by[later],
        "score": table.score, "progress": table.progress, **state.arguments, "first": first,
    }  # fmt: skip
    constants = {
        "LAYERS": table.layers, "RANGE": layers, "EXPERTS": table.experts, **expert_block(table), "NOW": now,
        "LATER": later, **state.sizes, "KEPT": kept,
    }  # fmt: skip
    return Call(_foresee, (layers,), arguments, constants, warps=4)
