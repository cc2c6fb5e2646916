"""Emulation in dilated time: each decode layer lasts as long as on the imitated hardware, times one factor.

Everything is real but the time that the GPU would compute, which is padded: on a CPU the work of a layer takes longer
than the GPU's layer, so time itself is stretched. The link is stretched by the same factor, and every time that is
reported is divided by it.
"""

from __future__ import annotations

import ctypes
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.pace import Pace

# The factors that are tried, the smallest first; beyond the last one a run takes too long to be of use.
LADDER = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
# More late layers than this, and the row says more about this machine than about the imitated one.
MOST_OVERRUNS = 0.05
# What is measured without padding is a little quicker than the same between two sleeps, and the machine quieter.
_EXPECTED_OVERRUNS = 0.02
_HEADROOM = 1.05
# Padding ends awake: a sleep wakes some tens of microseconds late, and the core must not be asleep when work begins.
_SPIN_NS = 60_000
_PR_SET_TIMERSLACK = 29
# Why an emulated run has no time to first token.
UNPACED_PROMPT = "an emulated prompt is computed at this host's own speed; only decoding is paced"


@dataclass(frozen=True, slots=True)
class Emulation:
    """What is imitated, and by how much its time is stretched here."""

    pace: Pace
    factor: float

    @property
    def layer_seconds(self) -> float:
        """How long a layer lasts at full load, in stretched time."""
        return self.factor * self.pace.layer_seconds

    @property
    def link_seconds_per_expert(self) -> float:
        """How long an expert occupies the link, in stretched time."""
        return self.factor * self.pace.expert_seconds

    @property
    def overlap_ratio(self) -> float:
        """Experts that the link moves while a layer computes at full load; no factor changes it."""
        return self.pace.overlap_ratio

    def pacer(self) -> LayerPacer:
        """What makes layers last that long."""
        return LayerPacer(self.pace.layer_seconds, self.factor)

    def real_ns(self, begin_ns: int, time_ns: int) -> int:
        """A time stamp of this host as one of the imitated hardware; both count from ``begin_ns``."""
        return begin_ns + round((time_ns - begin_ns) / self.factor)


class LayerPacer:
    """Makes every decode layer last ``factor * layer_seconds``, and the stall on top.

    ``start`` begins a prompt's decoding, ``stop`` ends it; in between ``layer_done`` is called at the end of each
    layer. A layer whose work is not done in its time is an *overrun*. The next layer is counted from the plan, not from
    the late end, so that it makes up for it where it can: single overruns do not lengthen a token. With factor 0
    nothing is padded, and only ``work`` is of use.
    """

    def __init__(self, layer_seconds: float, factor: float) -> None:
        if not (layer_seconds > 0 and factor >= 0):
            raise ValueError(f"layer_seconds = {layer_seconds}, factor = {factor}: must be positive")
        self._slot = round(1e9 * layer_seconds * factor)
        self._planned = 0
        self._last = 0
        self._running = False
        self._passed = 0
        self._work = array("d")
        self.overruns = 0

    def start(self) -> None:
        """The first token is out: from here on layers are paced."""
        _sharpen_timer()
        self._planned = self._last = time.perf_counter_ns()
        self._running = True

    def stop(self) -> None:
        """The prompt is done; what comes next, its successor's prefill, is not paced."""
        self._running = False

    def layer_done(self, stall_seconds: float, misses_seconds: float = 0.0) -> None:
        """The work of a layer is done, of which ``stall_seconds`` were spent waiting for experts: pad what is left.

        ``misses_seconds`` is how long the imitated host takes for the layer's misses; what it is longer than the stall
        passes as well.
        """
        if not self._running:
            return
        now = time.perf_counter_ns()
        stall = round(1e9 * stall_seconds)
        more = max(0, round(1e9 * misses_seconds) - stall)
        self._work.append(1e-9 * (now - self._last - stall))
        self._planned += self._slot + stall + more
        if now > self._planned:
            self.overruns += 1
        else:
            now = _wait_until(self._planned)
        self._passed += now - self._last - stall - more
        self._last = now

    def forget(self) -> None:
        """Count from here on: what was before was warm-up."""
        self._work = array("d")
        self._passed = self.overruns = 0

    @property
    def layers(self) -> int:
        """Layers so far."""
        return len(self._work)

    @property
    def work(self) -> NDArray[np.float64]:
        """Seconds of real work of every layer, without stall and padding, float64 [layers]."""
        return np.array(self._work)

    @property
    def overrun_share(self) -> float:
        """Share of the layers that ended late."""
        return self.overruns / max(self.layers, 1)

    @property
    def seconds_per_layer(self) -> float:
        """Mean time of a layer without its stall, padding included, in stretched time."""
        return 1e-9 * self._passed / max(self.layers, 1)


@contextmanager
def decoding(
    pacer: LayerPacer | None, on_token: Callable[[int, int], None] | None
) -> Iterator[Callable[[int, int], None] | None]:
    """Pace the decoding of a prompt: gives the ``on_token`` to decode with, which starts ``pacer`` at index 0."""
    if pacer is None:
        yield on_token
        return

    def first_starts(index: int, token: int) -> None:
        if on_token is not None:
            on_token(index, token)
        if index == 0:
            pacer.start()

    try:
        yield first_starts
    finally:
        pacer.stop()


def smallest_factor(work: NDArray[np.float64], layer_seconds: float) -> float:
    """The smallest of `LADDER` at which ``work`` (seconds per layer, in order) seldom overruns, or the largest.

    A late layer makes the next one late, as in `LayerPacer`.
    """
    for factor in LADDER[:-1]:
        if _late_share(_HEADROOM * work, factor * layer_seconds) <= _EXPECTED_OVERRUNS:
            return float(factor)
    return float(LADDER[-1])


def larger_factor(factor: float) -> float | None:
    """The next of `LADDER`, None after the last."""
    return next((float(other) for other in LADDER if other > factor), None)


def _late_share(work: NDArray[np.float64], slot: float) -> float:
    late, behind = 0, 0.0
    for seconds in work:
        behind = max(0.0, behind + seconds - slot)
        late += behind > 0
    return late / max(len(work), 1)


def _wait_until(end: int) -> int:
    """Sleep almost to ``end``, then spin: the sleeping core is the prefetch worker's."""
    ahead = end - time.perf_counter_ns() - _SPIN_NS
    if ahead > 0:
        time.sleep(1e-9 * ahead)
    now = time.perf_counter_ns()
    while now < end:
        now = time.perf_counter_ns()
    return now


def _sharpen_timer() -> None:
    """The kernel's default slack of 50 us is a third of an imitated layer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), 0, 0, 0)
