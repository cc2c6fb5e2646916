"""Qwen3-30B-A3B's sizes on random weights: cells of suites/gpu.toml, and the predictor that they forecast with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqmoe.harness.devices import GPU
from seqmoe.harness.gpu.children import StepFailed
from seqmoe.harness.progress import console_progress
from seqmoe.harness.replays import Replays
from seqmoe.harness.runner import run_suite
from seqmoe.harness.selection import find_suite
from seqmoe.harness.studies.prediction_job import VALIDATION
from seqmoe.harness.studies.predictors import TEST_SHARE
from seqmoe.predictor.making import make_predictor
from seqmoe.spec.paths import Home
from seqmoe.traces.source import digest
from seqmoe.traces.split import split

SUITE = "gpu"
_MINUTES = 6.0
_KIND = "mamba2"


def predictor_path(home: Home) -> Path:
    """Where the predictor of the suite's traces lies, made or not."""
    return home.predictors / f"{SUITE}-{_dataset(home)}-{digest(_traces(home))}.safetensors"


def train(home: Home) -> dict[str, Any]:
    """Make the predictor from the training part of the suite's traces, if it was not made before."""
    path = predictor_path(home)
    if path.is_file():
        return {"made": False, "bytes": path.stat().st_size}
    part, _ = split(_traces(home), TEST_SHARE)
    path.parent.mkdir(parents=True, exist_ok=True)
    made, record = make_predictor(_KIND, part, minutes=_MINUTES, validation=VALIDATION, work=path.with_suffix(""))
    made.save(path, record)
    return {"made": True, "minutes": _MINUTES, "bytes": path.stat().st_size}


def run_cells(home: Home, only: Sequence[str]) -> dict[str, Any]:
    """Run a part of the suite's cells on the GPU; records go to the suite's own store. Counts of them."""
    path = predictor_path(home)
    if not path.is_file():
        raise StepFailed("there is no predictor yet: run `--step predictor` first")
    result = run_suite(home, SUITE, only=only, predictor=path, device=GPU, progress=console_progress(), timeout=500.0)
    if result.failed:
        reasons = {record.cell_key: str(record.status) for record in result.records}
        first = result.failed[0]
        raise StepFailed(f"{len(result.failed)} cells failed; {first.label}: {reasons.get(first.key, 'no record')}")
    return {"cells": len(result.cells), "written": result.written, "store": result.path.name}


def _dataset(home: Home) -> str:
    (name,) = {cell.dataset for cell in find_suite(home, SUITE).cells("quick")}
    return name


def _traces(home: Home) -> Any:
    return Replays(home).traces(_dataset(home))
