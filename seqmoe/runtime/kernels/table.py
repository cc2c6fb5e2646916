"""The slot table on the device: the arrays of `seqmoe.core.slots`, and the device's own record of what it told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import torch

from seqmoe.core.control import HEADER
from seqmoe.core.slots import EMPTY

# The kernels order slots by (state, score, key or slot) as one int64, which leaves keys and slots this many bits.
KEY_BITS = 29


class Counter(IntEnum):
    """What the kernels count in ``counters``; experts are distinct ones of an event.

    ``UNPLACED`` misses found no slot and were not computed: any is an error of whoever lent too many slots. A landing
    is ``LATE`` if its expert had been loaded meanwhile, ``BARREN`` if it brought none, ``STALE`` if its tag was not
    the slot's. ``GIVEN_UP`` are landed prefetches that a miss displaced before their layer came.
    """

    EVENTS = 0
    HITS = 1
    MISSES = 2
    EVICTIONS = 3
    GIVEN_UP = 4
    UNPLACED = 5
    LANDED = 6
    LATE = 7
    BARREN = 8
    STALE = 9
    LENT = 10
    TASKS = 11


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTable:
    """Slots shared by all layers, as tensors on one device at fixed addresses.

    ``state`` uint8, ``owner`` int32 and ``tag`` int64 [slots], ``slot_of`` int32 and ``score`` float32 [layers,
    experts], -1 for none. Unlike on the host, a slot in FETCH has no owner: the worker chooses the expert later.
    ``progress`` int64 [16] holds, by the numbers of `seqmoe.core.control`, what the device last told or read, so that
    no kernel reads its own words over the link. ``counters`` int64 by `Counter`.
    """

    state: torch.Tensor
    owner: torch.Tensor
    tag: torch.Tensor
    slot_of: torch.Tensor
    score: torch.Tensor
    progress: torch.Tensor
    counters: torch.Tensor

    @classmethod
    def empty(cls, layers: int, experts: int, slots: int, device: str | torch.device = "cpu") -> Self:
        """A table of empty slots, before the first event."""
        if min(layers, experts, slots) < 1 or max(layers * experts, slots) >= 1 << KEY_BITS:
            raise ValueError(f"{layers} layers of {experts} experts in {slots} slots: must be from 1 to 2^{KEY_BITS}")
        progress = torch.zeros(HEADER, dtype=torch.int64, device=device)
        progress[0] = -1
        return cls(
            torch.full((slots,), EMPTY, dtype=torch.uint8, device=device),
            torch.full((slots,), -1, dtype=torch.int32, device=device),
            torch.full((slots,), -1, dtype=torch.int64, device=device),
            torch.full((layers, experts), -1, dtype=torch.int32, device=device),
            torch.zeros((layers, experts), dtype=torch.float32, device=device),
            progress,
            torch.zeros(len(Counter), dtype=torch.int64, device=device),
        )

    @property
    def slots(self) -> int:
        """Slots of the pool."""
        return self.state.numel()

    @property
    def layers(self) -> int:
        """MoE layers."""
        return self.slot_of.shape[0]

    @property
    def experts(self) -> int:
        """Routed experts of a layer."""
        return self.slot_of.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Misses:
    """What `plan` found missing, and `copy_misses` brings: the first ``count`` of ``key`` and ``slot``.

    ``key`` and ``slot`` int32 [tokens * choices], ``count`` int32 [1], ``finished`` int32 [1], which the copy's
    programs count themselves in.
    """

    key: torch.Tensor
    slot: torch.Tensor
    count: torch.Tensor
    finished: torch.Tensor

    @classmethod
    def of(cls, rows: int, device: str | torch.device = "cpu") -> Self:
        """An empty list for ``rows`` = tokens * choices."""
        key, slot, count, finished = (
            torch.zeros(length, dtype=torch.int32, device=device) for length in (rows, rows, 1, 1)
        )
        return cls(key, slot, count, finished)
