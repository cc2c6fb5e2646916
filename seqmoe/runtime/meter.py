"""What a placement did while it decoded: hits, bytes, stalls, and the link that was really achieved."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.runtime.engine import Emulation, Engine

_COUNTED = ("needed", "hits", "late")


class DecodeMeter:
    """Counts the events of decode steps only, over any number of prompts; prefill is left out.

    Pass it as ``on_token`` and call `prompt_done` after each prompt.
    """

    def __init__(self, engine: Engine) -> None:
        self._offloaded = engine.offloaded
        self._before = self._read()
        self.counts = dict.fromkeys(_COUNTED, 0)

    def __call__(self, index: int, token: int) -> None:
        """Called after each token; the first one ends the prompt's prefill."""
        if index == 0:
            self._before = self._read()

    def prompt_done(self) -> None:
        """Add up what happened since the first token."""
        now = self._read()
        for name in _COUNTED:
            self.counts[name] += now[name] - self._before[name]

    @property
    def hit_rate(self) -> float:
        """Share of the needed experts that were resident when their event started; 1 at full load."""
        return self.counts["hits"] / self.counts["needed"] if self.counts["needed"] else 1.0

    def _read(self) -> dict[str, int]:
        if self._offloaded is None:
            return dict.fromkeys(_COUNTED, 0)
        totals = self._offloaded.pipeline.statistics()
        return {name: int(totals[name]) for name in _COUNTED}


def placement_statistics(engine: Engine, emulation: Emulation | None) -> dict[str, Any]:
    """Bytes, prefetches, stalls (prefill included) and the link since the placement's statistics were reset."""
    offloaded = engine.offloaded
    expert_bytes = engine.host.expert_bytes
    result: dict[str, Any] = {
        "resident_bytes": (offloaded.pool if offloaded else engine.host).entries * expert_bytes,
    }
    if emulation is not None:
        result["overlap_ratio"] = emulation.overlap_ratio
        result["layer_seconds"] = emulation.layer_seconds
    if offloaded is None:
        return result | {"bytes_on_demand": 0, "bytes_prefetched": 0, "bytes_wasted": 0, "stall_seconds": 0.0}
    totals = offloaded.pipeline.statistics()
    result |= {
        "bytes_on_demand": totals["on_demand_transfers"] * expert_bytes,
        "bytes_prefetched": totals["prefetch_sent"] * expert_bytes,
        "bytes_wasted": (totals["prefetch_sent"] - totals["prefetch_used"]) * expert_bytes,
        "prefetch_created": totals["prefetch_created"],
        "prefetch_dropped": totals["prefetch_dropped"],
        "stall_seconds": totals["stall_seconds"],
    }
    if emulation is not None and offloaded.link.transfers:
        seconds = offloaded.link.busy_seconds / offloaded.link.transfers
        result["link_seconds_per_expert"] = seconds
        result["overlap_ratio_achieved"] = emulation.layer_seconds / seconds
    return result


def distinct_experts(recorded: list[NDArray[np.int32]], layers: int) -> float:
    """Distinct experts per layer over the decode steps of a request, mean over layers: its routing diversity.

    ``recorded`` holds the router's choice [tokens, k] of each layer in turn, the prompt's first.
    """
    decode = recorded[layers:] or recorded
    by_layer = [np.concatenate([event.ravel() for event in decode[layer::layers]]) for layer in range(layers)]
    return float(np.mean([len(np.unique(experts)) for experts in by_layer]))
