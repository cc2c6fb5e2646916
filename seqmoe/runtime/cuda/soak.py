"""Whether steps take more and more of the device's memory: there is no end to a server's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seqmoe.spec.errors import InputError


def slope(taken: Sequence[int]) -> float:
    """Bytes per look by which memory grows, by least squares; 0 for a straight level."""
    if len(taken) < 2:
        raise InputError(f"{len(taken)} looks at the memory say nothing of its slope; take at least 2")
    look = np.arange(len(taken)) - (len(taken) - 1) / 2
    grown = np.asarray(taken, dtype=np.float64) - taken[0]
    return float(look @ grown / (look @ look))


def soak(advance: Callable[[], None], taken: Callable[[], int], steps: int, looks: int = 10) -> list[int]:
    """Bytes that ``taken`` told after every ``steps / looks`` steps: the first ones load what is loaded when needed."""
    found = []
    for _ in range(looks):
        for _ in range(max(1, steps // looks)):
            advance()
        found.append(taken())
    return found
