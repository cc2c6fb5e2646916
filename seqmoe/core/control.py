"""The control region: int64 words through which the device and the prefetch worker speak, without a synchronisation.

It lies in mapped, pinned host memory (`seqmoe.core.driver`), or in any host memory where the "device" is a CPU. The
first ``HEADER`` words are counters; each has one writer and only ever grows, but for ``POSITION``:

===  ===============  ======  ==========================================================================================
no.  word             writer  means
===  ===============  ======  ==========================================================================================
0    ``POSITION``     device  step * layers + layer in progress; falls when a new request begins
1    ``MISSES_BEGUN`` device  layers that began to copy misses; the worker starts nothing while it exceeds the next word
2    ``MISSES_DONE``  device  layers that finished to
3    ``TASKS``        device  tasks ever dispatched, at most ``capacity`` more than ``TAKEN``
4    ``LENT``         device  slots ever lent to the worker, at most ``capacity`` more than ``CONSUMED``
5    ``LANDINGS``     host    landings ever posted, one for each lent slot that comes back
6    ``CONSUMED``     device  landings ever processed
7    ``FAILED``       host    1: the worker has ended with an error, and lent slots have come back
8    ``TAKEN``        host    tasks ever read by the worker
9    ``CAPACITY``     host    entries of each ring, a power of two; written once
===  ===============  ======  ==========================================================================================

Three rings follow, each of ``capacity`` entries, where entry number n (from 0) is written into place ``n & (capacity -
1)`` and then its counter is released:

- tasks at ``tasks_at``: expert key, deadline (a position), confidence (the bits of a float32 in the low half)
- lent slots at ``lent_at``: slot, tag (tags increase, and are never used again)
- landings at ``landings_at``: slot, tag, expert key, or ``NOTHING`` where no expert was brought and the slot is free

A device must not read another's word by a read-modify-write (such as an atomic ``or`` with 0): over PCIe this is a read
and a later write, and what the host wrote between is lost. It takes a volatile or acquire load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CAPACITY", "CONSUMED", "FAILED", "HEADER", "LANDINGS", "LANDING_WORDS", "LENT", "LENT_WORDS", "MISSES_BEGUN",
    "MISSES_DONE", "NOTHING", "POSITION", "TAKEN", "TASKS", "TASK_WORDS", "Control", "control_words", "landings_at",
    "lent_at", "tasks_at",
]  # fmt: skip

# As in native/control.h.
POSITION, MISSES_BEGUN, MISSES_DONE, TASKS, LENT, LANDINGS, CONSUMED, FAILED, TAKEN, CAPACITY = range(10)
HEADER = 16
TASK_WORDS, LENT_WORDS, LANDING_WORDS = 3, 2, 3
NOTHING = -1


def tasks_at() -> int:
    """The word where the ring of tasks begins."""
    return HEADER


def lent_at(capacity: int) -> int:
    """The word where the ring of lent slots begins."""
    return HEADER + TASK_WORDS * capacity


def landings_at(capacity: int) -> int:
    """The word where the ring of landings begins."""
    return HEADER + (TASK_WORDS + LENT_WORDS) * capacity


def control_words(capacity: int) -> int:
    """The words of a whole region. ``ValueError`` for a capacity that is no power of two."""
    if capacity < 1 or capacity & (capacity - 1):
        raise ValueError(f"capacity = {capacity}: must be a power of two")
    return HEADER + (TASK_WORDS + LENT_WORDS + LANDING_WORDS) * capacity


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """A view of a region: the host's side in Python, for a CPU that plays the device and for a look at what went on.

    ``words`` int64 [control_words(capacity)] is shared, not copied. Its plain loads and stores are ordered as x86 and
    the interpreter order them; the worker's and the kernels' own are atomic.
    """

    words: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.words.dtype != np.int64 or self.words.ndim != 1 or not self.words.flags.c_contiguous:
            raise ValueError(f"words: must be int64 [n] without gaps, not {self.words.dtype} {list(self.words.shape)}")
        written = len(self.words) >= HEADER and self.words[CAPACITY] > 0
        if not written or len(self.words) != control_words(self.capacity):
            raise ValueError(f"words: {len(self.words)} of them are no region that prepare() has written")

    @classmethod
    def prepare(cls, words: NDArray[np.int64], capacity: int) -> Self:
        """Clear ``words`` int64 [control_words(capacity)] and make a region of them."""
        if len(words) != control_words(capacity):
            raise ValueError(f"words: {len(words)}, but a capacity of {capacity} takes {control_words(capacity)}")
        words[:] = 0
        words[CAPACITY] = capacity
        return cls(words)

    @classmethod
    def of(cls, capacity: int) -> Self:
        """A region in ordinary memory."""
        return cls.prepare(np.zeros(control_words(capacity), dtype=np.int64), capacity)

    @property
    def capacity(self) -> int:
        """Entries of each ring."""
        return int(self.words[CAPACITY])

    @property
    def address(self) -> int:
        """Where the host finds word 0."""
        return self.words.ctypes.data

    @property
    def tasks(self) -> NDArray[np.int64]:
        """The ring of tasks, [capacity, 3]: key, deadline, bits of the confidence."""
        return self._ring(tasks_at(), TASK_WORDS)

    @property
    def lent(self) -> NDArray[np.int64]:
        """The ring of lent slots, [capacity, 2]: slot, tag."""
        return self._ring(lent_at(self.capacity), LENT_WORDS)

    @property
    def landings(self) -> NDArray[np.int64]:
        """The ring of landings, [capacity, 3]: slot, tag, key."""
        return self._ring(landings_at(self.capacity), LANDING_WORDS)

    def _ring(self, start: int, width: int) -> NDArray[np.int64]:
        return self.words[start : start + width * self.capacity].reshape(self.capacity, width)
