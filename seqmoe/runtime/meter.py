"""What a placement did while it decoded: hits, bytes, stalls, and the link that was really achieved."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.runtime.decode import Generation
from seqmoe.runtime.engine import Emulation, Engine


class DecodeMeter:
    """Counts the decode steps of any number of prompts, and their prefills apart.

    Make one before a prompt, pass it as ``on_token``, and call `prompt_done` after each prompt.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before = _counters(engine)
        self._steps = 0
        self._seconds = 0.0
        self.decode: Counter[str] = Counter()
        self.prefill: Counter[str] = Counter()

    def __call__(self, index: int, token: int) -> None:
        """Called after each token; the first one ends the prompt's prefill."""
        if index == 0:
            self._add(self.prefill)

    def prompt_done(self, result: Generation) -> None:
        """Add up what happened since the first token."""
        self._add(self.decode)
        self._steps += len(result.tokens) - 1
        self._seconds += result.decode_seconds

    @property
    def hit_rate(self) -> float | None:
        """Share of the needed experts that were resident when their event started; 1 at full load.

        None where an offloaded placement has not decoded a step yet.
        """
        if self._engine.offloaded is None:
            return 1.0
        return self.decode["hits"] / self.decode["needed"] if self.decode["needed"] else None

    def statistics(self, emulation: Emulation | None) -> dict[str, Any]:
        """Counts, bytes and stalls of decoding, ``prefill_bytes`` apart; sums over the prompts."""
        engine, decode = self._engine, self.decode
        size = engine.host.expert_bytes
        offloaded = engine.offloaded
        result: dict[str, Any] = {
            "resident_bytes": (offloaded.pool if offloaded else engine.host).entries * size,
            "bytes_on_demand": decode["on_demand_transfers"] * size,
            "bytes_prefetched": decode["prefetch_sent"] * size,
            "bytes_wasted": decode["prefetch_wasted"] * size,
            "bytes_late": decode["late"] * size,
            "prefill_bytes": (self.prefill["on_demand_transfers"] + self.prefill["prefetch_sent"]) * size,
            "stall_seconds": float(decode["stall_seconds"]),
        }
        if offloaded is not None:
            names = ("needed", "hits", "late", "late_unsent", "misses", "prefetch_created", "prefetch_dropped")
            result |= {name: decode[name] for name in names}
        if emulation is not None:
            result |= {"overlap_ratio": emulation.overlap_ratio, "full_load_layer_seconds": emulation.layer_seconds}
            result |= self._achieved(emulation)
        return result

    def _achieved(self, emulation: Emulation) -> dict[str, float]:
        """The link as it was in these decode steps, and the time of a layer that did not wait for it.

        The ratio that must match the one asked for is of full load's layer time: our own layers take longer.
        """
        transfers, layers = self.decode["link_transfers"], self._engine.geometry.layers
        if not transfers or not self._steps:
            return {}
        seconds = self.decode["link_seconds"] / transfers
        return {
            "link_seconds_per_expert": seconds,
            "layer_seconds": (self._seconds - self.decode["stall_seconds"]) / (layers * self._steps),
            "overlap_ratio_achieved": emulation.layer_seconds / seconds,
        }

    def _add(self, total: Counter[str]) -> None:
        now = _counters(self._engine)
        for name, value in now.items():
            total[name] += value - self._before[name]  # type: ignore[assignment]
        self._before = now


def _counters(engine: Engine) -> dict[str, int | float]:
    offloaded = engine.offloaded
    if offloaded is None:
        return {}
    link = {"link_transfers": offloaded.link.transfers, "link_seconds": offloaded.link.busy_seconds}
    return offloaded.pipeline.statistics() | link


def distinct_experts(recorded: list[NDArray[np.int32]], layers: int) -> float:
    """Distinct experts per layer over the decode steps of a request, mean over layers: its routing diversity.

    ``recorded`` holds the router's choice [tokens, k] of each layer in turn, the prompt's first.
    """
    decode = recorded[layers:] or recorded
    by_layer = [np.concatenate([event.ravel() for event in decode[layer::layers]]) for layer in range(layers)]
    return float(np.mean([len(np.unique(experts)) for experts in by_layer]))
