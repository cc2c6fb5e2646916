"""A small study, traces for it, and a stand-in for the process that computes a cell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.predictor.calibration import Calibration
from seqmoe.predictor.scores import Evaluation, MissScore, RolloutScore, SequenceScore
from seqmoe.spec.paths import Home
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet
from seqmoe.traces.store import write_store

STUDY = """
schema = 1
name = "small"
title = "Small"
figure = "8"
study = "prediction"
[[profile.quick.block]]
panel = "predictors"
predictors = ["mamba2", "transformer"]
traces = "{traces}"
minutes = 0.01
minutes_given_traces = 0.02
[[profile.quick.block]]
panel = "predictors"
traces = "{traces}"
predictors = ["previous", "popularity"]
[[profile.quick.block]]
panel = "ablation"
traces = "{traces}"
predictors = ["mamba2"]
minutes = 0.01
variant = [{{ title = "base" }}, {{ title = "Psi off", options = {{ psi = false }} }}]
"""


def write_study(home: Home, text: str = STUDY, seed: int = 0) -> Home:
    """Declare the study `small`, on traces of its own."""
    traces = write_traces(home.work / f"routing-{seed}", seed)
    (home.suites / "small.toml").write_text(text.format(traces=traces), encoding="utf-8")
    return home


def write_traces(folder: Path, seed: int = 0, sequences: int = 12, steps: int = 40) -> Path:
    """A store: 3 layers, 8 experts, top-2, one expert of which follows from the token before."""
    rng = np.random.default_rng(seed)
    requests = []
    for index in range(sequences):
        first = (np.arange(steps)[:, None] + np.arange(3)) % 8
        second = (first + 1 + rng.integers(0, 7, size=first.shape)) % 8
        experts = np.stack([first, second], axis=-1).astype(np.int16)
        phase = np.full(steps, DECODE, dtype=np.uint8)
        requests.append(RequestTrace(experts, phase, identifier=f"request-{index}"))
    write_store(TraceSet("tiny", 3, 8, 2, tuple(requests)), folder)
    return folder


def evaluation(recall: float = 0.8, drop: float = 0.05, sequences: int = 8) -> Evaluation:
    """An evaluation whose recall among the top k + 3 is ``recall``, and lower by ``drop`` over the rollout."""
    shares = [recall - 0.2, recall - 0.1, recall - 0.04, recall, recall + 0.02]
    hits = tuple(round(1000 * share) for share in shares)
    later = tuple(round(8000 * (share - drop)) for share in shares)
    rows = tuple(SequenceScore(125, 1000, hits, 8000, later) for _ in range(sequences))
    steps = RolloutScore((1000,) * 8, tuple(tuple(round(1000 * (s - drop)) for s in shares) for _ in range(8)))
    misses = {str(r): MissScore(400, tuple(round(400 * (s - r / 2)) for s in shares)) for r in (0.15, 0.25, 0.35, 0.45)}
    counts = tuple(100 for _ in range(15))
    bins = Calibration(counts, tuple(100 * (n + 0.5) / 15 for n in range(15)), tuple(round(6 * n) for n in range(15)))
    return Evaluation(3, 8, 2, 7, 1, rows, steps, misses, bins)


def fake_command(home: Home, behaviour: dict[str, Any] | None = None) -> list[str]:
    """The command of a stand-in that is told how to behave."""
    plan = {"log": str(home.work / "computed.jsonl"), "evaluation": evaluation().as_dict(), **(behaviour or {})}
    return [sys.executable, str(Path(__file__).with_name("fake_job.py")), json.dumps(plan), str(home.work)]


def computed(home: Home) -> list[dict[str, Any]]:
    """What the stand-ins were asked, in order; a line that is just being written is left out."""
    log = home.work / "computed.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
