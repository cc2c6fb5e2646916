"""The experts of one layer for the few tokens of a decode step, read through slot ids: two kernels, all formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from seqmoe.adapters.base import ACTIVATIONS
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.dots import dot_dense, dot_fp8, dot_mxfp4
from seqmoe.runtime.kernels.language import INTERPRETED, Pointer, Value, tl, triton
from seqmoe.runtime.kernels.weights import FORMATS, FP8_BLOCK, MXFP4_BLOCK, ExpertWeights

_FP8 = tl.constexpr(FORMATS.index("fp8"))
_MXFP4 = tl.constexpr(FORMATS.index("mxfp4"))
_PLAIN = tl.constexpr(ACTIVATIONS.index("swiglu"))
_OAI = tl.constexpr(ACTIVATIONS.index("swiglu_oai"))


@triton.jit
def _dot(
    weight: Pointer,
    scale: Pointer,
    vector: Pointer,
    row: Value,
    rows: Value,
    scale_row: Value,
    FORMAT: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    COLUMN_BLOCK: tl.constexpr,
) -> Value:
    if FORMAT == _FP8:
        total = dot_fp8(weight, scale, vector, row, rows, scale_row, COLUMNS, ROW_BLOCK, COLUMN_BLOCK)
    elif FORMAT == _MXFP4:
        total = dot_mxfp4(weight, scale, vector, row, rows, COLUMNS, ROW_BLOCK, COLUMN_BLOCK)
    else:
        total = dot_dense(weight, vector, row, rows, COLUMNS, ROW_BLOCK, COLUMN_BLOCK)
    return total


@triton.jit
def _activation(gate: Value, up: Value, limit: Value, alpha: Value, ACTIVATION: tl.constexpr) -> Value:
    """As `seqmoe/core/native/moe_activation.h`; a NaN stays one, which `tl.minimum` would not let it."""
    if ACTIVATION != _PLAIN:
        gate = tl.where(gate > limit, limit, gate)
        up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    if ACTIVATION == _OAI:
        value = gate / (1.0 + tl.exp(-alpha * gate)) * (up + 1.0)
    else:
        value = gate / (1.0 + tl.exp(-gate)) * up
    return value


@triton.jit
def _experts_gate_up(
    x: Pointer,
    weight: Pointer,
    scale: Pointer,
    bias: Pointer,
    slot_ids: Pointer,
    inner: Pointer,
    limit: Value,
    alpha: Value,
    CHOICES: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    SCALE_STRIDE: tl.constexpr,
    FORMAT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    COLUMN_BLOCK: tl.constexpr,
) -> None:
    assignment = tl.program_id(0)
    slot = tl.load(slot_ids + assignment).to(tl.int64)
    first = tl.program_id(1) * ROW_BLOCK
    row = first + tl.arange(0, ROW_BLOCK)
    if slot >= 0:
        vector = x + (assignment // CHOICES) * HIDDEN
        matrix = weight + slot * WEIGHT_STRIDE
        factors = scale + slot * SCALE_STRIDE
        gate = _dot(matrix, factors, vector, row, WIDTH, first // 128, FORMAT, HIDDEN, ROW_BLOCK, COLUMN_BLOCK)
        of_up = matrix + WEIGHT_STRIDE // 2
        factors += SCALE_STRIDE // 2
        up = _dot(of_up, factors, vector, row, WIDTH, first // 128, FORMAT, HIDDEN, ROW_BLOCK, COLUMN_BLOCK)
        if bias is not None:
            place = bias + slot * (2 * WIDTH) + row
            gate += tl.load(place, mask=row < WIDTH, other=0.0).to(tl.float32)
            up += tl.load(place + WIDTH, mask=row < WIDTH, other=0.0).to(tl.float32)
        value = _activation(gate, up, limit, alpha, ACTIVATION)
        tl.store(inner + assignment * WIDTH + row, value, mask=row < WIDTH)


@triton.jit
def _experts_down(
    inner: Pointer,
    weight: Pointer,
    scale: Pointer,
    bias: Pointer,
    slot_ids: Pointer,
    top_k_weights: Pointer,
    out: Pointer,
    CHOICES: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    SCALE_STRIDE: tl.constexpr,
    FORMAT: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    COLUMN_BLOCK: tl.constexpr,
) -> None:
    token = tl.program_id(0)
    first = tl.program_id(1) * ROW_BLOCK
    row = first + tl.arange(0, ROW_BLOCK)
    total = tl.zeros([ROW_BLOCK], tl.float32)
    # One program sums all choices, in their order: the same bits whichever slots they are in.
    for choice in range(CHOICES):
        assignment = token * CHOICES + choice
        slot = tl.load(slot_ids + assignment).to(tl.int64)
        if slot >= 0:
            matrix = weight + slot * WEIGHT_STRIDE
            factors = scale + slot * SCALE_STRIDE
            vector = inner + assignment * WIDTH
            part = _dot(matrix, factors, vector, row, HIDDEN, first // 128, FORMAT, WIDTH, ROW_BLOCK, COLUMN_BLOCK)
            if bias is not None:
                part += tl.load(bias + slot * HIDDEN + row, mask=row < HIDDEN, other=0.0).to(tl.float32)
            total += part * tl.load(top_k_weights + assignment).to(tl.float32)
    tl.store(out + token * HIDDEN + row, total.to(out.dtype.element_ty), mask=row < HIDDEN)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Rows of each matrix that one program computes, and how many columns (of "mxfp4": scales) it reads at a time.

    All are powers of two; rows are at most 128 in "fp8", so that they share their scales.
    """

    gate_up: int
    down: int
    columns: int

    @classmethod
    def of(cls, weights: ExpertWeights) -> Self:
        """Tiles of two to eight kilobytes, no spills; as few programs as can be where they are interpreted."""
        if not INTERPRETED:
            return {"dense": cls(16, 8, 256), "fp8": cls(8, 8, 512), "mxfp4": cls(8, 8, 16)}[weights.format]
        gate_up, down = triton.next_power_of_2(weights.width), triton.next_power_of_2(weights.hidden)
        columns = max(gate_up, down)
        if weights.format == "fp8":
            return cls(min(gate_up, FP8_BLOCK), min(down, FP8_BLOCK), columns)
        return cls(gate_up, down, columns // (MXFP4_BLOCK if weights.format == "mxfp4" else 1))


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """What a layer's experts need at fixed addresses: ``inner`` float32 [tokens * choices, width], shared by layers."""

    inner: torch.Tensor

    @classmethod
    def of(cls, rows: int, width: int, device: str | torch.device = "cpu") -> Self:
        """For ``rows`` = tokens * choices."""
        return cls(torch.empty((rows, width), dtype=torch.float32, device=device))


def calls(
    weights: ExpertWeights,
    hidden_states: torch.Tensor,
    slot_ids: torch.Tensor,
    top_k_weights: torch.Tensor,
    workspace: Workspace,
    out: torch.Tensor,
    tiling: Tiling | None = None,
) -> tuple[Call, Call]:
    """See `launch`."""
    tokens, choices = slot_ids.shape
    hidden, width = weights.hidden, weights.width
    for name, tensor, shape in (
        ("hidden_states", hidden_states, (tokens, hidden)),
        ("top_k_weights", top_k_weights, (tokens, choices)),
        ("workspace.inner", workspace.inner, (tokens * choices, width)),
        ("out", out, (tokens, hidden)),
    ):
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{name}: {list(tensor.shape)} instead of {list(shape)} without gaps")
    tiling = tiling or Tiling.of(weights)
    common = {"CHOICES": choices, "HIDDEN": hidden, "WIDTH": width, "FORMAT": FORMATS.index(weights.format)}
    gate_up = Call(
        _experts_gate_up,
        (tokens * choices, triton.cdiv(width, tiling.gate_up)),
        {
            "x": hidden_states, **_matrix(weights, "gate_up"), "slot_ids": slot_ids, "inner": workspace.inner,
            "limit": float(weights.limit), "alpha": float(weights.alpha),
        },
        {**common, **_blocks(weights, "gate_up", tiling), "ACTIVATION": ACTIVATIONS.index(weights.activation)},
        warps=4,
    )  # fmt: skip
    down = Call(
        _experts_down,
        (tokens, triton.cdiv(hidden, tiling.down)),
        {
            "inner": workspace.inner, **_matrix(weights, "down"), "slot_ids": slot_ids,
            "top_k_weights": top_k_weights, "out": out,
        },
        {**common, **_blocks(weights, "down", tiling)},
        warps=4,
    )  # fmt: skip
    return gate_up, down


def _matrix(weights: ExpertWeights, name: str) -> dict[str, torch.Tensor | None]:
    """The arguments of one matrix; bytes where Triton has no such type, and a scale that nobody reads for none."""
    weight, scale = getattr(weights, name), getattr(weights, f"{name}_scale")
    if weights.format != "dense":
        weight = weight.view(torch.uint8)
    if weights.format == "mxfp4":
        scale = scale.view(torch.uint8)
    return {"weight": weight, "scale": weight if scale is None else scale, "bias": getattr(weights, f"{name}_bias")}


def _blocks(weights: ExpertWeights, name: str, tiling: Tiling) -> dict[str, Any]:
    scale = getattr(weights, f"{name}_scale")
    return {
        "WEIGHT_STRIDE": getattr(weights, name)[0].numel(),
        "SCALE_STRIDE": 0 if scale is None else scale[0].numel(),
        "ROW_BLOCK": getattr(tiling, name),
        "COLUMN_BLOCK": tiling.columns,
    }


def launch(
    weights: ExpertWeights,
    hidden_states: torch.Tensor,
    slot_ids: torch.Tensor,
    top_k_weights: torch.Tensor,
    workspace: Workspace,
    out: torch.Tensor,
) -> None:
    """``out`` [tokens, hidden] = sum over choices of weight * down @ activation(gate_up @ hidden_states).

    ``hidden_states`` [tokens, hidden] and ``top_k_weights`` [tokens, choices] of any float type, ``slot_ids`` int32
    [tokens, choices] from `plan`; a negative one adds nothing. Sums are float32 and in one order, whichever slots the
    experts are in, and whatever else is in the batch.
    """
    for each in calls(weights, hidden_states, slot_ids, top_k_weights, workspace, out):
        each.launch()
