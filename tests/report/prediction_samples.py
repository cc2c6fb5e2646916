"""Synthetic records of the figure 2 and 8 suites: plausible numbers, chosen by the test, never measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from report_samples import ENVIRONMENT, HOME

from seqmoe.harness.record import Status
from seqmoe.harness.studies.record import SCHEMA, PredictionRecord
from seqmoe.predictor.calibration import Calibration
from seqmoe.predictor.scores import Evaluation, MissScore, RolloutScore, SequenceScore
from seqmoe.spec.prediction import PredictionCell, load_prediction_suite

RECALL = {
    "mamba2": 0.81, "transformer": 0.82, "early_router": 0.9, "first_order": 0.64, "previous": 0.62, "popularity": 0.45,
}  # fmt: skip
TRACES = {
    "digest": "0123456789ab", "model": "gpt-oss-20b", "requests": 393, "tokens": 132_660, "layers": 24, "experts": 32,
    "top_k": 4, "router": "softmax_renormalised", "licence": "x", "train": 354, "test": 39,
}  # fmt: skip
NO_EARLY = Status("unsupported", "the traces have no early routers' choices")


def evaluation(recall: float, drop: float = 0.03, far: bool = True, long: bool = False, seed: int = 0) -> Evaluation:
    """Recall among the top k + 3 is near ``recall``, by ``drop`` lower over the rollout; ``far`` false: no rollout."""
    rng = np.random.default_rng(seed)
    shares = np.minimum([recall - 0.17, recall - 0.1, recall - 0.045, recall, recall + 0.03], 0.99)
    rows = []
    for index in range(20):
        own = np.clip(shares + rng.normal(0, 0.02), 0, 1)
        later = tuple(int(8000 * share) for share in np.clip(own - drop, 0, 1)) if far else (0,) * 5
        length = 5000 if long and index < 3 else 300
        rows.append(SequenceScore(length, 1000, tuple(int(1000 * s) for s in own), 8000 if far else 0, later))
    steps = RolloutScore((1000,) * 8, tuple(tuple(int(1000 * (s - drop * n / 4)) for s in shares) for n in range(8)))
    misses = {
        str(r): MissScore(int(900 * (1 - r)), tuple(int(900 * (1 - r) * max(s - 0.1 - 0.3 * r, 0)) for s in shares))
        for r in (0.15, 0.25, 0.35, 0.45)
    }
    count = [4000, 900, 500, 300, 250, 220, 200, 190, 180, 180, 180, 190, 210, 260, 400]
    middle = (np.arange(15) + 0.5) / 15
    came = np.clip(middle * (1.12 - 0.3 * recall) + 0.02, 0, 1)
    bins = Calibration(tuple(count), tuple(middle * count), tuple(int(n) for n in came * count))
    return Evaluation(24, 32, 4, 7, 1, tuple(rows), steps if far else RolloutScore((), ()), misses, bins)


def curve(top: float, points: int = 12, rising: bool = True) -> list[dict[str, Any]]:
    """A learning curve that ends near ``top``."""
    return [
        {
            "minutes": 0.25 * (n + 1), "epoch": n + 1, "tokens": 120_000 * (n + 1), "loss": 3.0 / (n + 2),
            "validation_loss": 2.2 - (1.2 * (1 - np.exp(-n / 3)) if rising else 0.02 * n),
            "recall": top * (1 - 0.6 * np.exp(-n / 2.5)) if rising else top, "phase": "teacher",
        }
        for n in range(points)
    ]  # fmt: skip


def record(cell: PredictionCell, status: Status | None = None, **changes: Any) -> PredictionRecord:
    """A record of ``cell`` with observations that fit its predictor; ``changes`` are observations."""
    name = "reference" if cell.traces == "reference" else cell.traces
    about = TRACES | {"name": name} | ({"model": "reference"} if name == "reference" else {})
    observed: dict[str, Any] = {"traces": about}
    if status is None or status.ok:
        top = RECALL[cell.predictor] - 0.02 * bool(cell.variant) - 0.05 * (not cell.options.psi)
        far = cell.predictor != "early_router"
        observed |= {
            "evaluation": evaluation(top, far=far, seed=len(cell.variant)).as_dict(),
            "training": {"minutes": cell.minutes, "tokens": 1_440_000, "curve": curve(top) if cell.trained else []},
            "cost": {"one_step_us": 350.0, "rollout_us": 2100.0, "parameters": 1_900_000 if cell.trained else None},
        }  # fmt: skip
        if not far:
            observed["cost"] = {"missing": "needs the model's hidden state", "parameters": None}
        if cell.predictor == "mamba2":
            observed["future_use"] = {"rollout": 0.83, "direct": 0.86, "discount": 0.8, "m": 7, "steps": 8}
    observed |= changes
    return PredictionRecord(
        SCHEMA, "prediction", cell, cell.key, status or Status("ok"), observed, dict(ENVIRONMENT),
        "2026-01-01T00:00:00Z", 200.0,
    )  # fmt: skip


def fig8_records(traces: str | None = None) -> list[PredictionRecord]:
    """What a quick run of figure 8 might record."""
    cells = load_prediction_suite(HOME.suites / "fig8.toml").cells("quick", traces=traces)
    real = traces is not None
    return [record(c, NO_EARLY if real and c.predictor == "early_router" else None) for c in cells]


def fig2_records(traces: str | None = None, shuffled: float = 0.45) -> list[PredictionRecord]:
    """What a quick run of figure 2 might record: ordered sequences reach 0.82, shuffled ones ``shuffled``."""
    found = []
    for cell in load_prediction_suite(HOME.suites / "fig2.toml").cells("quick", traces=traces):
        points = curve(0.82) if cell.options.ordered else curve(shuffled, rising=False)
        found.append(record(cell, training={"minutes": cell.minutes, "curve": points, "epoch_tokens": 240_000}))
    return found
