"""Whether one side of paired times is slower: a rule that a busy machine does not fool, and that a slow-down meets.

Both sides are timed in turns, a fraction of a second each. A round's time is the least of several samples, since
whatever disturbs a program only makes it slower. Of the rounds three things must say the same: the median ratio of the
pairs, the ratio of the two least times, and a permutation test of the pairs, in which no difference means that the two
of a pair may be exchanged. What is suspected is run again in new processes (see `seqmoe.harness.against.runs`), since
where a program happens to lie in memory can make it slower by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SIGNIFICANCE = 0.01
_PERMUTATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Difference:
    """B's time over A's: ``ratio`` is the median of the pairs, ``least`` that of the least times of each side.

    ``p_value`` is one-sided: how often pairs that are exchanged at random look at least as slow.
    """

    ratio: float
    least: float
    p_value: float

    def slower(self, threshold: float) -> bool:
        """Whether B is slower by more than the share ``threshold``, by all three."""
        return min(self.ratio, self.least) > 1 + threshold and self.p_value < SIGNIFICANCE


def difference(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Difference:
    """Compare times in seconds, one of each side per round; ``ValueError`` where the rounds do not pair up."""
    if len(a) != len(b) or not a:
        raise ValueError(f"{len(a)} and {len(b)} times: every round needs one of each side")
    logs = np.log(np.asarray(b, dtype=np.float64)) - np.log(np.asarray(a, dtype=np.float64))
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=(_PERMUTATIONS, len(logs)))
    exchanged = (signs * logs).mean(axis=1)
    # The order that was observed is one of all, so the value is never 0.
    p_value = (1 + np.count_nonzero(exchanged >= logs.mean())) / (1 + _PERMUTATIONS)
    return Difference(float(np.exp(np.median(logs))), min(b) / min(a), float(p_value))
