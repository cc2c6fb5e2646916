"""Whether steps take more and more of the device's memory: there is no end to a server's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seqmoe.spec.errors import InputError


def slope(taken: Sequence[int]) -> float:
    """Bytes per look by which memory grows, by least squares; 0 for a straight level."""
    if len(taken) < 2:
        raise InputError(f"{len(taken)} looks at the memory say nothing of its slope; take at least 2")
    return float(np.polyfit(np.arange(len(taken)), np.asarray(taken, dtype=np.float64), 1)[0])


def soak(advance: Callable[[], None], taken: Callable[[], int], steps: int, looks: int = 10) -> list[int]:
    """Bytes that ``taken`` told before and after every ``steps / looks`` steps."""
    found = [taken()]
    for _ in range(looks):
        for _ in range(max(1, steps // looks)):
            advance()
        found.append(taken())
    return found
