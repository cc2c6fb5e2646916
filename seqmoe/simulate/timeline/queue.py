"""Waits for the one channel of the link: what is under way when a layer misses is not taken back."""

from __future__ import annotations

import numpy as np

from seqmoe.simulate.timeline.hits import StepCounts

# Misses that are rarer than one in so many layers hardly wait.
_LAYERS_AWAY = 1000


def load_stall(counts: StepCounts, layers: int, computation: float, load: float, transfer: float) -> float:
    """Seconds in which a step waits for experts: those loaded on demand, ``load`` each, and those that are late.

    A late prefetch is in flight when it is needed, and on average half of it is left. The first load of a layer that
    misses comes after whatever else is in flight. ``transfer`` is a prefetch's time on the link, ``computation`` the
    time of a step in which the link has no loads.
    """
    missing = missing_layers(counts, layers)
    waits = layers * missing * wait(counts, layers, computation, transfer)
    return counts.loads * load + counts.late / 2 * transfer + waits


def missing_layers(counts: StepCounts, layers: int) -> float:
    """Share of the layers that load on demand; misses fall on the experts of a layer independently."""
    needed, loads = counts.needed / layers, counts.loads / layers
    return float(1 - (1 - min(1.0, loads / needed)) ** needed)


def wait(counts: StepCounts, layers: int, computation: float, transfer: float) -> float:
    """Seconds until the link is free for a layer's first load, mean over the layers that miss."""
    busy = min(1.0, counts.sent * transfer / computation)
    return busy * transfer * left_of_transfer(missing_layers(counts, layers), computation / layers / transfer)


def left_of_transfer(missing: float, link: float) -> float:
    """What is left of the prefetch under way when a layer misses, a mean share of its time, on a link that never rests.

    After the loads of a layer the next prefetch begins as the layer begins to compute; the next layer that misses is
    one layer away with probability ``missing``, and so on. ``link`` is in experts per layer.
    """
    away = np.arange(1, _LAYERS_AWAY)
    chance = missing * (1 - missing) ** (away - 1)
    done = away * link
    return float((chance * (np.ceil(done) - done)).sum())
