"""The routing process fitted to published statistics: reuse of Qwen3-30B-A3B, and the mean hit rates of LRU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from seqmoe.simulate.timeline.hits import step_counts
from seqmoe.simulate.timeline.workload import PROMPT, synthetic_workload
from seqmoe.spec.calibration import Calibration
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.model import Model
from seqmoe.traces.synthesis.process import RoutingProcess
from seqmoe.traces.synthesis.requests import SyntheticRequests
from seqmoe.traces.synthesis.reuse import repeats

NAMES = ("working_set", "threshold", "burst", "burst_memory")
_QWEN3 = "qwen3-30b-a3b-fp8"
# Layers are independent, so a few tell the statistics; and how much longer a search of a simplex goes on.
_LAYERS, _EVALUATIONS = 8, 140
_START = (0.5, 0.2, 0.3, 0.7)
# The hit rates are of the traces that are simulated, the reuse is of another workload of one of the models: where they
# disagree, a point of the former weighs as much as four of the latter.
_WEIGHT = 4.0


def fit_routing(
    calibration: Calibration, claims: dict[str, float], models: Sequence[Model], seed: int = 0
) -> dict[str, float]:
    """Parameters of the process, by name."""

    def loss(place: np.ndarray) -> float:
        process = _process(place)
        found = statistics(process, models, seed)
        wanted = targets(calibration, claims)
        return sum((_WEIGHT if name.startswith("lru") else 1.0) ** 2 * (found[name] - wanted[name]) ** 2
                   for name in wanted)  # fmt: skip

    best = minimize(loss, np.array(_START), method="Nelder-Mead", options={"maxfev": _EVALUATIONS})
    process = _process(best.x)
    return {name: float(getattr(process, name)) for name in NAMES}


def targets(calibration: Calibration, claims: dict[str, float]) -> dict[str, float]:
    """What `statistics` is fitted to."""
    return {
        "repeat_1": calibration.published("repeat_1"),
        "repeat_8": calibration.published("repeat_8"),
        "lru_15": claims["hit-lru-15"] / 100,
        "lru_45": claims["hit-lru-45"] / 100,
    }


def statistics(process: RoutingProcess, models: Sequence[Model], seed: int = 0) -> dict[str, float]:
    """The same statistics of synthetic routing; LRU's are means over the models that the paper's are means of."""
    found: dict[str, float] = {}
    rates: dict[float, list[float]] = {0.15: [], 0.45: []}
    for model in models:
        geometry = Geometry(_LAYERS, model.experts, model.top_k)
        work = synthetic_workload(geometry, process, 1, None, seed)
        for residency, known in rates.items():
            # The RTX 5090 holds Qwen3.6 up to 40 % only (paper, section 9.2).
            if residency == 0.15 or model.family != "qwen3_5_moe":
                known.append(step_counts(work, "lru", residency, 0.0).hit_rate)
        if model.name == _QWEN3:
            request = SyntheticRequests(geometry, process, 1, PROMPT, 128, seed)[0]
            for window in (1, 8):
                found[f"repeat_{window}"] = repeats(request.experts, model.experts, window, PROMPT)
    found |= {f"lru_{residency:.0%}".rstrip("%"): float(np.mean(known)) for residency, known in rates.items()}
    return found


def _process(place: np.ndarray) -> RoutingProcess:
    """Parameters of any sign, as a process: heights by their logarithm, a memory by its logit."""
    memory = float(1 / (1 + np.exp(-place[3])))
    return RoutingProcess(float(np.exp(place[0])), float(place[1]), float(np.exp(place[2])), min(memory, 0.999))
