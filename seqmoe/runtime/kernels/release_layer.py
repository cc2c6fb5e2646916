"""A layer is over: its experts may be evicted again."""

from __future__ import annotations

from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, Value, tl, triton
from seqmoe.runtime.kernels.order import COMPUTE, EMPTY, USED
from seqmoe.runtime.kernels.table import DeviceTable


@triton.jit(do_not_specialize=["layer"])
def _release_layer(
    state: Pointer, slot_of: Pointer, layer: Value, EXPERTS: tl.constexpr, EXPERT_BLOCK: tl.constexpr
) -> None:
    expert = tl.arange(0, EXPERT_BLOCK)
    place = tl.load(slot_of + layer * EXPERTS + expert, mask=expert < EXPERTS, other=-1)
    held = tl.load(state + place, mask=place >= 0, other=EMPTY)
    tl.store(state + place, tl.full([EXPERT_BLOCK], USED, tl.uint8), mask=(place >= 0) & (held == COMPUTE))


def call(table: DeviceTable, layer: int) -> Call:
    """See `launch`."""
    arguments = {"state": table.state, "slot_of": table.slot_of, "layer": layer}
    constants = {"EXPERTS": table.experts, "EXPERT_BLOCK": triton.next_power_of_2(table.experts)}
    return Call(_release_layer, (1,), arguments, constants, warps=1)


def launch(table: DeviceTable, layer: int) -> None:
    """COMPUTE -> USED for the experts of ``layer``, landed prefetches that it did not need included.

    After `lend`, so that no slot is lent whose expert the layer has just used.
    """
    call(table, layer).launch()
