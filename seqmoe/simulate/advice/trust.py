"""How far a prediction is to be trusted: what the print was of what was simulated, over bars that were held out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from seqmoe.simulate.calibrate.errors import Judged, judge
from seqmoe.simulate.calibrate.figure6 import TTFT, Point, points
from seqmoe.simulate.calibrate.fit import is_input
from seqmoe.spec.calibration import Calibration
from seqmoe.spec.paths import Home

# Eight of ten held-out bars lie within.
_LOW, _HIGH = 10, 90
# The system whose errors stand in for one that the paper has no bars of: all that have some.
ANY = "any"


@dataclass(frozen=True, slots=True)
class Trust:
    """Held-out errors of one system: how many ``bars``, the ``median`` of their relative errors as absolute values.

    Eight of ten printed values were ``low`` to ``high`` times the simulated ones. ``of`` is the system, or `ANY`.
    """

    of: str
    bars: int
    median: float
    low: float
    high: float


def held_out(home: Home, calibration: Calibration, batched: bool) -> list[Judged]:
    """The held-out bars of decode throughput and TTFT, simulated; of batches where ``batched``, else of one request.

    Models run in two threads, each with workloads of its own; nearly all of it is compiled code.
    """
    chosen = [point for point in points(home) if _matters(point, batched) and not is_input(calibration, point)]
    groups = [list(group) for _, group in groupby(chosen, key=lambda point: point.model.name)]
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(judge, home, calibration, 0, group) for group in groups]
        return [one for future in found for one in future.result()]


def trust(judged: Iterable[Judged], system: str, ttft: bool) -> Trust:
    """How far to trust ``system``'s decode throughput, or its TTFT; with no bars of it, as far as all that compete."""
    every = [one for one in judged if (one.point.bar.panel == TTFT) == ttft]
    own = [one for one in every if one.point.system == system]
    return _of(own, system) if own else _of([one for one in every if one.point.system != "full"], ANY)


def _of(chosen: Sequence[Judged], name: str) -> Trust:
    ratios = np.array([one.printed / one.simulated for one in chosen])
    low, high = np.percentile(ratios, [_LOW, _HIGH])
    median = float(np.median([abs(one.error) for one in chosen]))
    return Trust(name, len(chosen), median, float(low), float(high))


def _matters(point: Point, batched: bool) -> bool:
    panel = point.bar.panel
    return panel == TTFT or (panel == "batch" and point.batch > 1 if batched else panel.startswith("decode"))
