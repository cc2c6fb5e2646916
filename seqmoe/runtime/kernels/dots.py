"""Rows of one matrix times a vector, in each weight format: what the experts kernels are made of.

Eight- and four-bit floats are widened by moving their bits into a float16, whose exponent counts from elsewhere: exact,
subnormals included, with one multiplication by a power of two to follow. It needs no instruction of a new GPU, so FP8
and MXFP4 run on compute capability 8.0 too, and it is the same arithmetic in the interpreter. Loops ask for stages
explicitly: without a matrix instruction in them, Triton would not load ahead.
"""

from __future__ import annotations

from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton

# Exponents: float16 counts from 15, e4m3 from 7, e2m1 from 1.
_E4M3_IN_FLOAT16 = tl.constexpr(2.0**8)
_E2M1_IN_FLOAT16 = tl.constexpr(2.0**14)


@triton.jit
def dot_dense(
    weight: Pointer,
    vector: Pointer,
    row: Value,
    rows: Value,
    COLUMNS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    COLUMN_BLOCK: tl.constexpr,
) -> Value:
    """float32 [ROW_BLOCK] of the rows ``row`` < ``rows`` of ``weight`` [rows, COLUMNS] with ``vector`` [COLUMNS]."""
    total = tl.zeros([ROW_BLOCK, COLUMN_BLOCK], tl.float32)
    for start in tl.range(0, COLUMNS, COLUMN_BLOCK, num_stages=3):
        column = start + tl.arange(0, COLUMN_BLOCK)
        here = column < COLUMNS
        x = tl.load(vector + column, mask=here, other=0.0).to(tl.float32)
        mask = (row < rows)[:, None] & here[None, :]
        w = tl.load(weight + row[:, None] * COLUMNS + column[None, :], mask=mask, other=0.0)
        total += w.to(tl.float32) * x[None, :]
    return tl.sum(total, axis=1)


@triton.jit
def dot_fp8(
    weight: Pointer,
    scale: Pointer,
    vector: Pointer,
    row: Value,
    rows: Value,
    scale_row: Value,
    COLUMNS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    COLUMN_BLOCK: tl.constexpr,
) -> Value:
    """The same of bytes of e4m3, all rows of which have the scales ``scale_row`` of ``scale``, one for 128 columns."""
    blocks: tl.constexpr = (COLUMNS + 127) // 128
    total = tl.zeros([ROW_BLOCK, COLUMN_BLOCK], tl.float32)
    for start in tl.range(0, COLUMNS, COLUMN_BLOCK, num_stages=3):
        column = start + tl.arange(0, COLUMN_BLOCK)
        here = column < COLUMNS
        factor = tl.load(scale + scale_row * blocks + column // 128, mask=here, other=0.0) * _E4M3_IN_FLOAT16
        x = tl.load(vector + column, mask=here, other=0.0).to(tl.float32) * factor
        mask = (row < rows)[:, None] & here[None, :]
        w = tl.load(weight + row[:, None] * COLUMNS + column[None, :], mask=mask, other=0)
        total += _e4m3(w) * x[None, :]
    return tl.sum(total, axis=1)


@triton.jit
def dot_mxfp4(
    weight: Pointer,
    scale: Pointer,
    vector: Pointer,
    row: Value,
    rows: Value,
    COLUMNS: tl.constexpr,
    ROW_BLOCK: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
) -> Value:
    """The same of bytes of two e2m1 and bytes of e8m0, ``scale`` [rows, COLUMNS / 32]; GROUP_BLOCK scales at a time."""
    groups: tl.constexpr = COLUMNS // 32
    total = tl.zeros([ROW_BLOCK, GROUP_BLOCK, 16], tl.float32)
    byte = tl.arange(0, 16)[None, :]
    for start in tl.range(0, groups, GROUP_BLOCK, num_stages=3):
        group = start + tl.arange(0, GROUP_BLOCK)
        here = (group < groups)[:, None] & (byte >= 0)
        pair = vector + group[:, None] * 32 + 2 * byte
        even = tl.load(pair, mask=here, other=0.0).to(tl.float32) * _E2M1_IN_FLOAT16
        odd = tl.load(pair + 1, mask=here, other=0.0).to(tl.float32) * _E2M1_IN_FLOAT16
        real = (row < rows)[:, None] & (group < groups)[None, :]
        factor = _e8m0(tl.load(scale + row[:, None] * groups + group[None, :], mask=real, other=127))
        place = (row[:, None] * groups + group[None, :])[:, :, None] * 16 + byte[None, :, :]
        w = tl.load(weight + place, mask=real[:, :, None] & (byte >= 0)[None, :, :], other=0)
        part = _e2m1(w & 15) * even[None, :, :] + _e2m1(w >> 4) * odd[None, :, :]
        total += part * factor[:, :, None]
    return tl.sum(tl.sum(total, axis=2), axis=1)


@triton.jit
def _e4m3(byte: Value) -> Value:
    """Bytes of e4m3fn to float32, 2^8 too small; its NaN, which weights never are, becomes 480."""
    wide = byte.to(tl.uint16)
    return (((wide & 128) << 8) | ((wide & 127) << 7)).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _e2m1(half: Value) -> Value:
    """Four bits of e2m1 to float32, 2^14 too small."""
    wide = half.to(tl.uint16)
    return (((wide & 8) << 12) | ((wide & 7) << 9)).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _e8m0(byte: Value) -> Value:
    """Bytes of e8m0 to float32: 2^(byte - 127), NaN for 255."""
    wide = byte.to(tl.int32)
    bits = tl.where(wide == 0, 0x400000, tl.where(wide == 255, 0x7FC00000, wide << 23))
    return bits.to(tl.float32, bitcast=True)
