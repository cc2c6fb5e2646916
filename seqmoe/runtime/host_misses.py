"""Misses that the host's CPU computes where they lie, while the link loads others and the device computes its hits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.host_pool import HostPool
from seqmoe.runtime.placement import ExpertPool
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.pace import MissPrices

# What `seqmoe.runtime.meter` tells of it.
HOST_COUNTS = ("misses", "host_computed", "cpu_seconds")
NEEDS_MEMORY = (
    "host pool tier 'disk' (--host, --pool): the CPU computes misses from memory; use 'pageable', or a system that "
    "loads its misses"
)
# Where the device is the CPU itself, nothing is gained by moving an expert before it is computed.
_HERE = MissPrices(link=1.0, contended=1.0, cpu=0.0, hand_over=0.0, hit=0.0)


class HostMisses:
    """Which misses are loaded, what the others are computed from, and how long the imitated host takes for them."""

    def __init__(self, host: HostPool, geometry: Geometry, emulation: Emulation | None) -> None:
        """Raises `InputError` for a host pool that is no memory, and an emulated profile without prices."""
        if not isinstance(host, ExpertPool):
            raise InputError(NEEDS_MEMORY)
        prices = emulation.pace.misses if emulation is not None else _HERE
        if prices is None:
            raise InputError(
                "misses on the CPU: the emulated hardware's file in suites/hardware has no [rates], so nobody knows "
                "how fast its CPU is; rtx4090.toml has them"
            )
        self._pool, self._experts, self._prices = host, geometry.experts, prices
        self._factor = emulation.factor if emulation is not None else 1.0
        self._loads: dict[int, NDArray[np.int32]] = {}
        self._pending, self._slower = 0.0, 1.0
        self.seconds = 0.0

    def loads(self, needed: int) -> NDArray[np.int32]:
        """How many of m misses are loaded, for each m up to ``needed``, int32 [needed + 1]."""
        if needed not in self._loads:
            best = [misses - self._prices.cheapest(misses, needed - misses) for misses in range(needed + 1)]
            self._loads[needed] = np.array(best, dtype=np.int32)
        return self._loads[needed]

    def entered(self, event: tuple[int, int, int, int]) -> None:
        """A layer's experts are placed, as `OffloadPipeline.last_event` counts them."""
        hits, _, _, computed = event
        self._pending = self._factor * self._prices.on_cpu(computed, hits) if computed else 0.0
        self._slower = self._prices.contended / self._prices.link if computed else 1.0

    def take(self, stall: float) -> float:
        """Seconds that the imitated host takes for the layer's misses, where this one waited for ``stall`` of them.

        Beside the CPU the link is slower than the emulated one.
        """
        needed = max(self._pending, stall * self._slower)
        self.seconds += max(0.0, needed - stall)
        self._pending, self._slower = 0.0, 1.0
        return needed

    def on_host(
        self, layer: int, experts: NDArray[np.int32], slots: NDArray[np.int32]
    ) -> tuple[ExpertPool, NDArray[np.int32]] | None:
        """The host pool and the keys in it of experts without a slot, [batch, k] and -1 elsewhere; None if all have."""
        absent = slots < 0
        if not absent.any():
            return None
        return self._pool, np.where(absent, experts + np.int32(layer * self._experts), np.int32(-1))
