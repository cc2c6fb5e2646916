"""Evidence: one figure, or one comparison, that records give on a claim, and on what terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

COMPUTED = "computed"
# What is closest to the paper's own experiment first; arithmetic on declared sizes has no lane of its own.
LANES = ("measured", COMPUTED, "emulated", "simulated")


@dataclass(frozen=True, slots=True)
class Sample:
    """A number in the claim's unit with its 95 % interval, NaN where it has none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def has_interval(self) -> bool:
        """Whether the ends are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found, in which ``lane``, on which ``model``.

    ``own_terms`` is true for the model (and, for speeds, the machine) that the claim is about. An order has ``agrees``
    and ``text`` instead of a ``sample``, and ``contradicts`` where a difference is on the wrong side beyond chance.
    ``basis`` says in words what was run, ``synthetic`` whether the routing was drawn instead of observed.
    """

    lane: str
    model: str
    basis: str
    own_terms: bool
    sample: Sample | None = None
    agrees: bool | None = None
    contradicts: bool = False
    text: str = ""
    synthetic: bool = False

    def __post_init__(self) -> None:
        if self.lane not in LANES:
            raise ValueError(f"lane = {self.lane!r}: must be one of {', '.join(LANES)}")
        if (self.sample is None) == (self.agrees is None):
            raise ValueError("evidence has either a sample or an answer")


def best_first(evidence: Iterable[Evidence], last: Callable[[str], bool]) -> list[Evidence]:
    """The paper's own terms before others', then by lane, observed routing before synthetic.

    Models of which ``last`` is true come after all others.
    """
    return sorted(
        evidence,
        key=lambda one: (not one.own_terms, last(one.model), LANES.index(one.lane), one.synthetic),
    )
