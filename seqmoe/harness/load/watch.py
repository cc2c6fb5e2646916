"""Looks at the server again and again while clients ask: its memory and its counts."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import numpy as np

from seqmoe.harness.load.counts import Counts, read_counts
from seqmoe.harness.load.server import ServerProcess

# One sample more or less would be decided by the requests that just then hold a cache.
_AROUND = 5
# What `seqmoe_tokens_per_second` looks back on.
RATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The server at one time, in seconds of the clock that tells the time of day; ``resident`` in bytes."""

    at: float
    resident: int
    counts: Counts


class Watch:
    """Takes a `Sample` every ``interval`` seconds on a thread of its own, from the start to the end of a ``with``."""

    def __init__(self, server: ServerProcess, interval: float) -> None:
        self._server, self._interval = server, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._samples: list[Sample] = []
        self._error: Exception | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def samples(self) -> list[Sample]:
        """Those taken so far; `RuntimeError` where the server could not be looked at any more."""
        if self._error is not None:
            raise RuntimeError(f"the server could not be observed: {self._error}")
        return list(self._samples)

    def _run(self) -> None:
        try:
            while True:
                self._samples.append(Sample(time.time(), self._server.resident(), read_counts(self._server.url)))
                if self._stop.wait(self._interval):
                    return
        except (httpx.HTTPError, ProcessLookupError, ValueError) as error:
            self._error = error


def tokens_between(samples: Sequence[Sample], began: float, ended: float) -> float:
    """Tokens the server generated in that time, its counter taken as linear between two samples."""
    times, tokens = [sample.at for sample in samples], [sample.counts.tokens for sample in samples]
    first, last = np.interp([began, ended], times, tokens)
    return float(last - first)


def mean_rate(samples: Sequence[Sample], began: float, ended: float) -> float | None:
    """Mean of the server's own throughput, of samples whose ten seconds lie in that time; None where none does."""
    rates = [sample.counts.tok_s for sample in samples if began + RATE_SECONDS <= sample.at <= ended]
    return statistics.fmean(rates) if rates else None


def growth(samples: Sequence[Sample], began: float, ended: float) -> tuple[int, int]:
    """Resident bytes at the begin and at the end of a time, each the median of up to five samples that lie in it."""
    inside = [sample.resident for sample in samples if began <= sample.at <= ended]
    if len(inside) < 2:
        raise RuntimeError(f"only {len(inside)} looks at the server within {ended - began:.1f} s; measure for longer")
    around = min(_AROUND, len(inside) // 2)
    return int(statistics.median(inside[:around])), int(statistics.median(inside[-around:]))
