"""Constants of time, each fitted to the few bars that are its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from seqmoe.simulate.calibrate.figure6 import TTFT, Point, points
from seqmoe.simulate.calibrate.routing import fit_routing
from seqmoe.simulate.timeline.cell import Simulator
from seqmoe.spec.calibration import Calibration
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import claim_values


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants that are solved for together, on the input bars of ``system`` in panels of one kind.

    ``bounds`` are least and most of each; efficiencies lie within what can be, overheads are not negative.
    """

    constants: tuple[str, ...]
    system: str
    ttft: bool
    bounds: tuple[tuple[float, float], ...]


# Seconds and shares below this are at a bound of 0.
_NOTHING = 1e-9
_SHARE, _OVERHEAD = (0.01, 1.5), (0.0, 5e-3)
FITTED = (
    Fitted(("seqmoe.link_efficiency",), "seqmoe", False, (_SHARE,)),
    Fitted(("freetoken.link_efficiency",), "FreeToken", False, (_SHARE,)),
    Fitted(("llama_cpp.cpu_efficiency", "llama_cpp.layer_overhead"), "llama.cpp", False, (_SHARE, _OVERHEAD)),
    Fitted(("ktransformers.cpu_efficiency", "ktransformers.layer_overhead"), "KTransformers", False,
           (_SHARE, _OVERHEAD)),
    Fitted(("moe_infinity.link_efficiency", "moe_infinity.layer_overhead"), "MoE-Infinity", False,
           (_SHARE, _OVERHEAD)),
    Fitted(("seqmoe.prefill_efficiency",), "seqmoe", True, (_SHARE,)),
    Fitted(("freetoken.prefill_efficiency",), "FreeToken", True, (_SHARE,)),
    Fitted(("pageable.bandwidth",), "llama.cpp", True, ((0.1, 100.0),)),
    Fitted(("ktransformers.gflops_per_thread",), "KTransformers", True, ((0.1, 1e4),)),
)  # fmt: skip


def fit(home: Home, calibration: Calibration, seed: int = 0) -> Calibration:
    """The calibration with all its constants fitted anew to its inputs; what its file holds is not used."""
    every = points(home)
    inputs = [point for point in every if is_input(calibration, point)]
    models = list({point.model.name: point.model for point in every}.values())
    for name, value in fit_routing(calibration, claim_values(home), models, seed).items():
        calibration = with_value(calibration, f"routing.{name}", value)
    for point in inputs:
        if point.system == "full":
            calibration = _explain_full_load(home, calibration, point, seed)
    for group in FITTED:
        mine = [point for point in inputs if point.system == group.system and (point.bar.panel == TTFT) == group.ttft]
        calibration = _fitted(home, calibration, group, mine, seed)
    return calibration


def is_input(calibration: Calibration, point: Point) -> bool:
    """Whether the point's bar was fitted to."""
    bar = point.bar
    return calibration.is_input_bar(bar.panel, bar.model, bar.system, bar.x)


def with_value(calibration: Calibration, name: str, value: float) -> Calibration:
    """The calibration with one constant changed, to four digits."""
    rounded = 0.0 if abs(value) < _NOTHING else float(f"{value:.4g}")
    constants = tuple(replace(item, value=rounded) if item.name == name else item for item in calibration.constant)
    return replace(calibration, constant=constants)


def _explain_full_load(home: Home, calibration: Calibration, point: Point, seed: int) -> Calibration:
    """The overhead of a layer that makes full load of the model what it was measured to be."""
    name = f"overhead.{point.model.name}"
    bare = point.run(Simulator(home, with_value(calibration, name, 0.0), seed)).time.total
    return with_value(calibration, name, (point.batch / point.printed - bare) / point.model.layers)


def _fitted(home: Home, calibration: Calibration, group: Fitted, mine: Sequence[Point], seed: int) -> Calibration:
    simulator = Simulator(home, calibration, seed)

    def tried(values: np.ndarray) -> Calibration:
        found = calibration
        for name, value in zip(group.constants, values, strict=True):
            found = with_value(found, name, float(value))
        return found

    def residuals(values: np.ndarray) -> np.ndarray:
        simulator.calibration = tried(values)
        return np.array([np.log(point.value(simulator) / point.printed) for point in mine])

    low, high = np.array(group.bounds).T
    start = np.sqrt(np.maximum(low, high * 1e-4) * high)
    best = least_squares(residuals, start, bounds=(low, high), x_scale=high, diff_step=np.full(len(high), 1e-3))
    return tried(best.x)
