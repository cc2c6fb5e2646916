"""What a retention policy is shown and what it answers: scores, of which the lowest is evicted first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.schedule import Order
from seqmoe.predictor.base import Ranges

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Foresight:
    """Forecasts of a batch, mean over its requests.

    ``padded`` float32 [steps + 1, rows, layers, experts] are the forecasts, after a step of zeros: before the first
    step nothing is known. ``use`` float32 [steps, layers, experts] is the predictor's direct forecast of discounted
    future use, a use ``discount`` less for each step that it is away; None where the predictor makes none.
    """

    padded: Floats
    ranges: Ranges
    use: Floats | None = None
    discount: float = 0.8

    @property
    def probability(self) -> Floats:
        """Row [t, j] is P(active at step t + 1 + j); each of ``ranges`` is told after its last layer of step t."""
        return self.padded[1:]

    @property
    def before(self) -> Floats:
        """The same as it was known when step t began: row [t, j] is P(active at step t + j)."""
        return self.padded[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """What a policy is shown of a batch: all of it. A policy that is no oracle reads, for step t, only steps up to t.

    ``active`` bool [steps, layers, experts] are the experts that each event needs (the union over the batch),
    ``counted`` bool [steps] the steps whose hits count: prefill and warm-up are the others. ``residency`` is the share
    of all experts that the pool of ``slots`` holds. ``popularity`` float32 [layers, experts] is how often other traces
    of the model used each expert, ``weights`` what `seqmoe.simulate.policies.learned` fitted to them; None where none
    were given.
    """

    active: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    top_k: int
    residency: float
    slots: int
    foresight: Foresight | None = None
    popularity: Floats | None = None
    weights: Floats | None = None

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position of every event, step * layers + layer, int64 [steps, layers]."""
        steps, layers, _ = self.active.shape
        return np.arange(steps * layers, dtype=np.int64).reshape(steps, layers)

    def forecasts(self) -> Foresight:
        """The forecasts; ``ValueError`` for a routing without."""
        if self.foresight is None:
            raise ValueError("this policy needs forecasts")
        return self.foresight


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Two arrays [steps, layers, experts], or None for what does not change a score.

    After event (t, p) the scores of layer p become ``used[t, p]``; when a range has been forecast at the end of its
    last layer of step t, those of its layers become ``forecast[t, first:last]``. Numbers of any scale: only their order
    matters, across layers and times, and the lowest is evicted first. Ties go to the lower expert key.
    """

    used: NDArray[np.floating] | None = None
    forecast: NDArray[np.floating] | None = None

    def checked(self, policy: Policy, routing: Routing) -> Scores:
        """The same as contiguous float32; ``ValueError``, with the policy's name, for another shape or a NaN."""
        found: list[Floats | None] = []
        for name, values in (("used", self.used), ("forecast", self.forecast)):
            if values is not None and values.shape != routing.active.shape:
                raise ValueError(f"policy {policy.name!r}: {name} {values.shape}, expected {routing.active.shape}")
            if values is not None and np.isnan(values).any():
                raise ValueError(f"policy {policy.name!r}: {name} holds NaN, which has no order")
            found.append(None if values is None else np.ascontiguousarray(values, dtype=np.float32))
        return Scores(*found)


ScoreFunction = Callable[[Routing], Scores]


@dataclass(frozen=True, slots=True)
class Policy:
    """A retention policy, and how it prefetches. ``title`` is for people, ``about`` its description in a sentence.

    ``needs`` are what it cannot do without: ``forecast``, ``use`` (the direct head), ``popularity``, ``weights``,
    ``warm`` (steps before the counted ones). ``prefetch`` is the order of `seqmoe.core.simulate.PrefetchRules`, None
    for no prefetching, ``reserve`` says when a task gets its slot, and what is less likely than ``least_confidence`` is
    not prefetched. ``by_residency``: the scores depend on the size of the pool. ``oracle``: it reads the future.
    """

    name: str
    title: str
    score: ScoreFunction
    about: str = ""
    needs: tuple[str, ...] = ()
    prefetch: Order | None = None
    reserve: Literal["creation", "selection"] = "creation"
    least_confidence: float = 0.0
    by_residency: bool = False
    oracle: bool = False

    @property
    def forecasts(self) -> bool:
        """Whether it needs a predictor."""
        return self.prefetch is not None or bool({"forecast", "use", "weights"} & set(self.needs))
