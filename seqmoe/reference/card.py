"""The model card, measured: perplexity beside simple models, and whether its routing looks like a real MoE model's."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.first_order import FirstOrder, fit
from seqmoe.runtime.engine import Engine
from seqmoe.simulate.replay import replay_traces
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet
from seqmoe.traces.statistics import routing_statistics

_WINDOW = 256
_RESIDENCIES = [0.15, 0.25, 0.35, 0.45]
_BIGRAM_WEIGHT = 0.8


def collect_routing(engine: Engine, tokens: NDArray[np.int64], windows: int) -> TraceSet:
    """Routing of the model on ``windows`` evenly spread windows of a token stream; each becomes a request."""
    geometry = engine.geometry
    starts = np.linspace(0, len(tokens) - _WINDOW - 1, windows).astype(int)
    engine.place_full()
    requests = []
    for start in starts:
        recorded: list[NDArray[np.int32]] = []
        engine.router.recorded = recorded
        engine.generate(tokens[start : start + _WINDOW].tolist(), 1)
        experts = np.stack(recorded[: geometry.layers], axis=1).astype(np.int16)
        requests.append(RequestTrace(experts, np.full(len(experts), DECODE, dtype=np.uint8)))
    engine.router.recorded = None
    return TraceSet(
        "reference", geometry.layers, geometry.experts, geometry.top_k, tuple(requests), source="held-out text"
    )


def fit_predictor(traces: TraceSet) -> FirstOrder:
    """The first-order predictor of the model's routing on its training text.

    Half of every forecast is the request's own running average: the statistics alone lose to LRU at high residency.
    """
    return fit(traces, recent=0.5)


def measure_routing(engine: Engine, held_out: NDArray[np.int64], windows: int = 48) -> dict[str, Any]:
    """Routing statistics, and LRU and Belady hit rates at the paper's residencies, on held-out text."""
    traces = collect_routing(engine, held_out, windows)
    rows = replay_traces(traces, ["lru", "belady"], _RESIDENCIES)
    hits = {f"{row.policy} at {row.residency:.0%}": round(row.hit_rate, 4) for row in rows}
    return {**asdict(routing_statistics(traces)), "hit_rate": hits}


def baseline_perplexity(train: NDArray[np.int64], held_out: NDArray[np.int64], vocabulary: int) -> dict[str, float]:
    """Held-out perplexity of a smoothed unigram model, and of a bigram model interpolated with it."""
    unigram = np.bincount(train, minlength=vocabulary) + 1.0
    unigram /= unigram.sum()
    pairs = train[:-1] * vocabulary + train[1:]
    keys, counts = np.unique(pairs, return_counts=True)
    following = np.bincount(train[:-1], minlength=vocabulary)
    asked = held_out[:-1] * vocabulary + held_out[1:]
    place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    seen = np.where(keys[place] == asked, counts[place], 0) / np.maximum(following[held_out[:-1]], 1)
    plain = unigram[held_out[1:]]
    mixed = _BIGRAM_WEIGHT * seen + (1 - _BIGRAM_WEIGHT) * plain
    return {"unigram": math.exp(-np.log(plain).mean()), "bigram": math.exp(-np.log(mixed).mean())}


def checkpoint_bytes(folder: Path) -> int:
    """Size of everything that is shipped."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
