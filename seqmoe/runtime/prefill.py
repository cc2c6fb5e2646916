"""Prefetching while a prompt is computed: what its next layers will need (paper, section 8.4).

A prompt needs most experts of every layer, so which come first is told by how often other traces used them. One
layer's worth of slots is kept for misses; the others may be in flight or wait for their layer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable
from seqmoe.spec.geometry import Geometry

# A short prompt does not need what is popular: an expert is fetched if it is more likely needed than not.
_LEAST_CHANCE = 0.5


class PromptPrefetcher:
    """``policy`` "on_demand" fetches nothing; "popularity" the next layers' most popular experts, layer by layer, while
    slots last; "ping_pong" all of the one next layer, as FreeToken's two layer buffers do.

    ``popularity`` float32 [layers, experts]: share of the tokens of other traces that used the expert; without it the
    policy of that name is "on_demand", as ``policy`` then says.
    """

    def __init__(
        self,
        policy: str,
        geometry: Geometry,
        slots: int,
        table: SlotTable,
        pipeline: OffloadPipeline,
        popularity: NDArray[np.float32] | None,
    ) -> None:
        if policy == "popularity" and popularity is None:
            policy = "on_demand"
        self.policy = policy
        self._layers, self._experts = geometry.layers, geometry.experts
        self._room = 0 if policy == "on_demand" else max(0, slots - geometry.experts)
        self._ahead = 1 if policy == "ping_pong" else geometry.layers
        self._popularity = popularity if policy == "popularity" else None
        self._table, self._pipeline = table, pipeline
        self._keys = np.empty(0, dtype=np.int32)
        self._layer_of = self._keys
        self._rank = np.empty(0, dtype=np.float32)
        self._next = 0
        self._waiting = np.zeros(geometry.layers, dtype=np.int64)
        self._position, self._stride = 0, 1

    def begin(self, steps: int, position: int, stride: int) -> None:
        """A prompt of ``steps`` tokens; layer p runs at ``position + stride * p``."""
        self._position, self._stride = position, stride
        self._next = 0
        self._waiting[:] = 0
        rank = self._popularity
        if rank is None:
            rank = np.ones((self._layers, self._experts), dtype=np.float32)
        order = np.argsort(-rank, axis=1, kind="stable")
        rank = np.take_along_axis(rank, order, axis=1)
        wanted = 1 - (1 - np.minimum(rank, 1)) ** steps >= _LEAST_CHANCE
        keys = order + np.arange(self._layers)[:, None] * self._experts
        self._keys, self._rank = keys[wanted].astype(np.int32), rank[wanted]
        self._layer_of = self._keys // self._experts
        self.after(-1)

    def after(self, layer: int) -> None:
        """Layer ``layer`` has what it needs: fill the slots that its prefetches have left."""
        room = self._room - int(self._waiting[layer + 1 :].sum())
        if room <= 0:
            return
        last = min(layer + 1 + self._ahead, self._layers)
        self._next = max(self._next, int(np.searchsorted(self._layer_of, layer + 1)))
        end = int(np.searchsorted(self._layer_of, last))
        candidates = np.arange(self._next, end)
        absent = self._table.slot_of.ravel()[self._keys[candidates]] < 0
        chosen = candidates[absent][:room]
        if not len(chosen):
            self._next = end
            return
        self._next = int(chosen[-1]) + 1
        keys, layers = self._keys[chosen], self._layer_of[chosen]
        self._waiting += np.bincount(layers, minlength=self._layers)
        deadline = self._position + self._stride * layers.astype(np.int64)
        self._pipeline.prefetch(keys, self._rank[chosen], deadline)
