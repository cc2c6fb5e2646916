"""What a placement did while it decoded: hits, bytes, stalls, and the link that was really achieved."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seqmoe.runtime.emulation import Emulation, LayerPacer
from seqmoe.runtime.offloaded import Offloaded
from seqmoe.spec.geometry import Geometry

# Decode steps to a window: long enough that the rate of one says something, short enough that a run has several.
WINDOW_STEPS = 16


class Metered(Protocol):
    """What runs: a model's engine, or a trace's."""

    geometry: Geometry

    @property
    def offloaded(self) -> Offloaded | None:
        """The offloaded placement, or None at full load."""
        ...

    @property
    def pacer(self) -> LayerPacer | None:
        """What pads its layers, or None."""
        ...


class DecodeMeter:
    """Counts the decode steps of any number of prompts, and their prefills apart.

    Make one before a prompt, pass it as ``on_token``, and call `prompt_done` after each prompt.
    """

    def __init__(self, engine: Metered) -> None:
        self._engine = engine
        self._before = _counters(engine)
        self.decode: Counter[str] = Counter()
        self.prefill: Counter[str] = Counter()
        self._windows: list[tuple[int, int]] = []
        self._window_start = (0, 0)

    def __call__(self, index: int, token: int) -> None:
        """Called after each token; the first one ends the prompt's prefill, every `WINDOW_STEPS`th a window."""
        if index == 0:
            self._add(self.prefill)
            self._window_start = self._counted
        elif index % WINDOW_STEPS == 0:
            self._add(self.decode)
            needed, hits = (now - then for now, then in zip(self._counted, self._window_start, strict=True))
            self._windows.append((needed, hits))
            self._window_start = self._counted

    def prompt_done(self) -> None:
        """Add up what happened since the first token."""
        self._add(self.decode)

    @property
    def hit_rate(self) -> float | None:
        """Share of the needed experts that were resident when their event started; 1 at full load.

        None where an offloaded placement has not decoded a step yet.
        """
        if self._engine.offloaded is None:
            return 1.0
        return self.decode["hits"] / self.decode["needed"] if self.decode["needed"] else None

    @property
    def _counted(self) -> tuple[int, int]:
        return int(self.decode["needed"]), int(self.decode["hits"])

    def so_far(self) -> float | None:
        """`hit_rate` of the prompt that is being decoded, with what happened since the last count."""
        if self._engine.offloaded is None:
            return 1.0
        now = _counters(self._engine)
        needed, hits = (self.decode[name] + now[name] - self._before[name] for name in ("needed", "hits"))
        return hits / needed if needed else None

    def statistics(self, emulation: Emulation | None) -> dict[str, Any]:
        """Counts, bytes and stalls of decoding, ``prefill_bytes`` apart; sums over the prompts.

        ``windows`` are the needed experts and the hits of every `WINDOW_STEPS` steps of each prompt or batch, in order;
        what is left at a prompt's end makes none.
        """
        engine, decode = self._engine, self.decode
        size = engine.geometry.expert_bytes
        offloaded = engine.offloaded
        result: dict[str, Any] = {
            "resident_bytes": (offloaded.pool.entries if offloaded else engine.geometry.total_experts) * size,
            "bytes_on_demand": decode["on_demand_transfers"] * size,
            "bytes_prefetched": decode["prefetch_sent"] * size,
            "bytes_wasted": decode["prefetch_wasted"] * size,
            "bytes_late": decode["late"] * size,
            "prefill_bytes": (self.prefill["on_demand_transfers"] + self.prefill["prefetch_sent"]) * size,
            "stall_seconds": float(decode["stall_seconds"]),
        }
        if offloaded is not None:
            result["prefill_policy"] = offloaded.prefill_policy
            names = ("needed", "hits", "late", "late_unsent", "misses", "prefetch_created", "prefetch_dropped")
            result |= {name: decode[name] for name in names}
            needed, hits = ([window[place] for window in self._windows] for place in (0, 1))
            if offloaded.misses is not None:
                result |= {"host_computed": decode["host_computed"], "cpu_seconds": float(decode["cpu_seconds"])}
            result["windows"] = {"steps": WINDOW_STEPS, "needed": needed, "hits": hits}
        if emulation is not None:
            for name in ("stall_seconds", "cpu_seconds"):
                if name in result:
                    result[name] /= emulation.factor
            result |= self._emulated(emulation)
        return result

    def _emulated(self, emulation: Emulation) -> dict[str, float]:
        """How much slower time ran, how often that was too little, and the overlap ratio asked for and achieved.

        Times are those of the imitated hardware, as they were reached: the mean layer that waited for nothing, and the
        mean transfer.
        """
        pacer, transfers = self._engine.pacer, self.decode["link_transfers"]
        result: dict[str, float] = {"dilation": emulation.factor, "overlap_ratio": emulation.overlap_ratio}
        if pacer is None or not pacer.layers:
            return result
        layer = pacer.seconds_per_layer / emulation.factor
        result |= {"overrun_share": pacer.overrun_share, "layer_seconds": layer}
        if transfers:
            expert = self.decode["link_seconds"] / transfers / emulation.factor
            result |= {"link_seconds_per_expert": expert, "overlap_ratio_achieved": layer / expert}
        return result

    def _add(self, total: Counter[str]) -> None:
        now = _counters(self._engine)
        for name, value in now.items():
            total[name] += value - self._before[name]  # type: ignore[assignment]
        self._before = now


def _counters(engine: Metered) -> dict[str, int | float]:
    offloaded = engine.offloaded
    if offloaded is None:
        return {}
    link = {"link_transfers": offloaded.link.transfers, "link_seconds": offloaded.link.busy_seconds}
    if offloaded.misses is not None:
        link["cpu_seconds"] = offloaded.misses.seconds
    return offloaded.pipeline.statistics() | link


def distinct_experts(recorded: list[NDArray[np.int32]], layers: int) -> float:
    """Distinct experts per layer over the decode steps of a request, mean over layers: its routing diversity.

    ``recorded`` holds the router's choice [tokens, k] of each layer in turn, the prompt's first.
    """
    decode = recorded[layers:] or recorded
    by_layer = [np.concatenate([event.ravel() for event in decode[layer::layers]]) for layer in range(layers)]
    return float(np.mean([len(np.unique(experts)) for experts in by_layer]))
