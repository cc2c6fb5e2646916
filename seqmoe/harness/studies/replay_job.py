"""One cell of a replay study: find or make the predictor, and replay the test part of the traces."""

from __future__ import annotations

import fcntl
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqmoe.harness.studies.job import Emit
from seqmoe.harness.studies.prediction_job import VALIDATION, at_intervals, training_event
from seqmoe.harness.studies.predictors import TEST_SHARE, Found, find_predictor, own_path
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.kinds import TRAINED, load_predictor
from seqmoe.predictor.making import make_predictor
from seqmoe.simulate.replay import ReplayOptions, replay_traces
from seqmoe.spec.declared import build
from seqmoe.spec.paths import find_home
from seqmoe.spec.replay import ReplayCell, experts_per_layer
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.split import split


def compute(request: dict[str, Any], progress: Emit) -> dict[str, Any]:
    """The observations of a cell; see `seqmoe.harness.studies.record.ReplayRecord`."""
    cell = build(ReplayCell, request["cell"], "cell")
    progress({"stage": "reading the traces"})
    traces = load_traces(request["source"])
    # The same split as the predictors are trained by: no policy is judged on what its forecasts were fitted to.
    train, test = split(traces, TEST_SHARE)
    home = find_home()
    links = {name: experts_per_layer(home, name) for name in cell.links}
    predictor: Predictor | None = None
    about: dict[str, Any] = {}
    if cell.predictor:
        predictor, about = _predictor(
            cell, traces, train, Path(request["keep"]).parent, Path(request["work"]), progress
        )
    tell = at_intervals(progress)
    begun = time.perf_counter()
    rows = replay_traces(
        test,
        cell.policies,
        cell.residencies,
        ReplayOptions(tuple(links.values()), cell.contract, cell.batch, cell.stagger, cell.warm_up),
        predictor=predictor,
        # What the predictor was not fitted to, only stopped by: its forecasts are as good there as on new sequences.
        fitted_on=split(train, VALIDATION.share, VALIDATION.seed)[1],
        progress=lambda done, of: tell({"stage": f"replaying, {done} of {of} sequences"}),
    )
    return {
        "rows": [row.as_dict() for row in rows],
        "links": {name: None if math.isinf(value) else value for name, value in links.items()},
        "predictor": about,
        "traces": {"train": len(train.requests), "test": len(test.requests)},
        "replay_seconds": round(time.perf_counter() - begun, 2),
    }


def _predictor(
    cell: ReplayCell, traces: TraceSet, train: TraceSet, folder: Path, work: Path, progress: Emit
) -> tuple[Predictor, dict[str, Any]]:
    """The one that there is, or else one that is made and kept for the next time."""
    content = digest(traces)
    if (found := find_predictor(cell, content, traces, folder)) is not None:
        return load_predictor(found.path), found.about(cell.predictor)
    folder.mkdir(parents=True, exist_ok=True)
    path = own_path(cell, content, folder)
    progress({"stage": "waiting for the predictor that another cell makes"})
    with _alone(path):
        if not path.is_file():
            tell = at_intervals(progress)
            predictor, record = make_predictor(
                cell.predictor,
                train,
                minutes=cell.minutes if cell.predictor in TRAINED else None,
                seed=cell.seed,
                validation=VALIDATION,
                work=work,
                progress=lambda state: tell({"stage": "training"} | training_event(state)),
            )
            predictor.save(path, record)
    return load_predictor(path), Found(path, "replay", cell.minutes).about(cell.predictor)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process makes the file, others wait here; the system lets go of a killed one's lock."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
