"""Numbers as integers of the same order, so that one reduction finds a least value, breaks ties and tells whose it is.

A slot's place in the order of eviction is one int64: its rank (2 bits), its score (32 bits), and its expert's key (29
bits), so that ties go to the lower key. Empty slots come first, the lowest number first.
"""

from __future__ import annotations

from seqmoe.core import slots
from seqmoe.runtime.kernels.language import Value, tl, triton
from seqmoe.runtime.kernels.table import KEY_BITS

EMPTY = tl.constexpr(slots.EMPTY)
USED = tl.constexpr(slots.USED)
FETCH = tl.constexpr(slots.FETCH)
COMPUTE = tl.constexpr(slots.COMPUTE)

# No slot that may be taken has this place.
NO_SLOT = tl.constexpr(2**63 - 1)
_KEY_BITS = tl.constexpr(KEY_BITS)
_KEY_MASK = tl.constexpr(2**KEY_BITS - 1)
_RANK = tl.constexpr(32 + KEY_BITS)


@triton.jit
def ascending(number: Value) -> Value:
    """float32 to int64 from 0 to 2^32 - 1, in the same order; -0 equals 0."""
    bits = (number + 0.0).to(tl.int32, bitcast=True).to(tl.int64)
    return tl.where(bits < 0, -1 - bits, bits + 2147483648)


@triton.jit
def eviction_place(state: Value, score: Value, key: Value, slot: Value) -> Value:
    """Places in the order of eviction: EMPTY, then USED, then COMPUTE by score, NaN the lowest; FETCH has none."""
    lowest = tl.where(score == score, score, -float("inf"))
    rank = tl.where(state == USED, 1, 2).to(tl.int64)
    place = (rank << _RANK) | (ascending(lowest) << _KEY_BITS) | key.to(tl.int64)
    place = tl.where(state == EMPTY, slot.to(tl.int64), place)
    return tl.where(state == FETCH, NO_SLOT, place)


@triton.jit
def evicted_key(place: Value) -> Value:
    """The expert that gives up a place, or -1 for an empty slot's."""
    return tl.where(place >> _RANK > 0, place & _KEY_MASK, -1).to(tl.int32)


@triton.jit
def is_given_up(place: Value) -> Value:
    """Whether the expert that gives up a place was a landed prefetch."""
    return (place >> _RANK == 2).to(tl.int32)
