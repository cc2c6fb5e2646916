"""One cell of a replay study: find or make the predictor, and replay the test part of the traces."""

from __future__ import annotations

import fcntl
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import seqmoe
from seqmoe.harness.store import read_records
from seqmoe.harness.studies.job import Emit
from seqmoe.harness.studies.prediction_job import TEST_SHARE, VALIDATION, at_intervals, training_event
from seqmoe.harness.studies.record import STUDIES, PredictionRecord, latest_of_cells
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.container import read_container
from seqmoe.predictor.kinds import TRAINED, load_predictor
from seqmoe.predictor.making import make_predictor
from seqmoe.simulate.replay import ReplayOptions, replay_traces
from seqmoe.spec.declared import build
from seqmoe.spec.paths import find_home
from seqmoe.spec.replay import ReplayCell, experts_per_layer
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.split import split

REFERENCE_PREDICTORS = Path(seqmoe.__file__).parent / "reference" / "checkpoint" / "predictor"


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
    """The predictor that figure 8 left for these traces, or that ships; else one is made and kept for the next time."""
    content = digest(traces)
    for origin, found in (("fig8", _recorded(cell, content, folder)), ("package", _shipped(cell, train))):
        if found is not None:
            path, minutes = found
            about = {"kind": cell.predictor, "from": origin, "minutes": minutes, "file": path.name}
            return load_predictor(path), about
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{cell.predictor}-{content}-{cell.minutes:g}min-{cell.seed}.safetensors"
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
    about = {"kind": cell.predictor, "from": "replay", "minutes": cell.minutes, "file": path.name}
    return load_predictor(path), about


def _recorded(cell: ReplayCell, content: str, folder: Path) -> tuple[Path, float] | None:
    """The file of a predictor of this kind that was trained longest on these traces, no variant, and for how long."""
    records = folder.parent / "fig8.jsonl"
    if not records.is_file():
        return None
    best: tuple[float, Path] | None = None
    for record in latest_of_cells(read_records(records, STUDIES)):
        if not isinstance(record, PredictionRecord) or not record.status.ok or record.digest != content:
            continue
        path = folder / f"{record.cell_key}.safetensors"
        same = (record.cell.predictor, record.cell.variant, record.cell.seed) == (cell.predictor, "", cell.seed)
        if same and path.is_file() and (best is None or record.cell.minutes > best[0]):
            best = (record.cell.minutes, path)
    return None if best is None else (best[1], best[0])


def _shipped(cell: ReplayCell, train: TraceSet) -> tuple[Path, float] | None:
    """The reference model's predictor, if it was trained on just this training part."""
    path = REFERENCE_PREDICTORS / f"{cell.predictor}.safetensors"
    if cell.seed or not path.is_file():
        return None
    about, _ = read_container(path)
    same = about["training"].get("traces") == digest(train)
    return (path, float(about["training"].get("minutes") or 0.0)) if same else None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process makes the file, others wait here; the system lets go of a killed one's lock."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
