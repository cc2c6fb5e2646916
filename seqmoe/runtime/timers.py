"""Where the time of a decode step goes, in parts that do not overlap."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass

import numpy as np

PARTS = ("computation", "predictor", "management", "stall", "other")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of some decode steps.

    ``computation`` is attention, routers, MoE kernel, head and choice of the token; ``management`` slots, tasks and
    scores; ``stall`` the wait for experts; ``other`` the loop around the model, callbacks among it.
    """

    computation: float
    predictor: float
    management: float
    stall: float
    other: float

    @property
    def total(self) -> float:
        """All of it."""
        return sum(asdict(self).values())

    def as_dict(self) -> dict[str, float]:
        """Seconds by name, as ``NAME_seconds``."""
        return {f"{name}_seconds": getattr(self, name) for name in PARTS}


class StepTimers:
    """Collects what others measure: a decoder its steps, the offload function its placements.

    ``placing_ns`` are the nanoseconds so far from the start of each layer's offload function to its kernel, which
    contain the predictor's and the stalls.
    """

    def __init__(self) -> None:
        self.placing_ns = 0
        self._rows = array("d")

    def step(self, whole_ns: int, model_ns: int, placing_ns: int, predictor_ns: int, stall_seconds: float) -> None:
        """One decode step took ``whole_ns``, of these ``model_ns`` in the model and the choice of the token."""
        stall_ns = 1e9 * stall_seconds
        management = placing_ns - predictor_ns - stall_ns
        self._rows.extend((model_ns - placing_ns, predictor_ns, management, stall_ns, whole_ns - model_ns))

    def clear(self) -> None:
        """Count from here on."""
        self._rows = array("d")

    def steps(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Seconds float64 [steps, parts] in the order of `PARTS`."""
        return 1e-9 * np.array(self._rows).reshape(-1, len(PARTS))

    def breakdown(self) -> Breakdown:
        """The sum over the steps."""
        return Breakdown(*self.steps().sum(0).tolist())
