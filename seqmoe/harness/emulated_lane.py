"""The simulator against our own runtime: what it says of emulated cells, beside what they measured.

Nothing is fitted: hits and loads are the replay's, on the routing that the cells' own prompts have and with the files
of their predictors, and time is the hardware profile's layer and link.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqmoe.harness import metrics
from seqmoe.harness.prompts import load_prompts
from seqmoe.harness.record import Record
from seqmoe.harness.store import latest, read_records, store_files
from seqmoe.harness.weights import checkpoint_digest
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.kinds import load_predictor
from seqmoe.simulate.replay import ReplayOptions, ReplayRow, replay_traces
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.simulate.timeline.queue import load_stall
from seqmoe.spec.files import files_sha256
from seqmoe.spec.miss_prices import emulated_pace
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import REPLAY, Cell
from seqmoe.spec.system import SYSTEMS
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.collect.collector import collect
from seqmoe.traces.collect.request import CollectOptions, Prompt
from seqmoe.traces.store import open_store

LANE, _SUITE = "emulated", "fig6"
# Systems that the replay has as a policy of the same name.
_POLICIES = ("lru", "lfu", "lfu_decay", "prefill_hot", "seqmoe", "seqmoe_infinity", "seqmoe_cache_only")


@dataclass(frozen=True, slots=True)
class EmulatedPoint:
    """One emulated cell: shares of emulated full load and hit rates, measured (medians over repeats) and simulated."""

    system: str
    predictor: str
    residency: float
    measured: float
    simulated: float
    measured_hits: float
    simulated_hits: float

    @property
    def error(self) -> float:
        """Relative error of the share, signed."""
        return self.simulated / self.measured - 1


@dataclass(frozen=True, slots=True)
class _Group:
    """Records that ran the same prompts of one model on one imitated machine, by cell."""

    cell: Cell
    model: Model
    cells: dict[str, list[Record]]


def emulated_records(home: Home) -> list[Record]:
    """Figure 6's emulated records of this clone; where there are none, those that are published with it."""
    for folder in (home.results, home.results / "published"):
        files = [path for path in store_files(folder) if path.stem == _SUITE]
        found = [record for path in files for record in latest(read_records(path)) if record.cell.lane == LANE]
        if found:
            return found
    return []


def emulated_points(home: Home, records: Iterable[Record]) -> list[EmulatedPoint]:
    """A point for every emulated cell that ran beside full load, on a checkpoint of the package as it is now.

    Records of other weights or of replayed routing, batches, and systems that the replay does not have are left out.
    """
    found: list[EmulatedPoint] = []
    for group in _groups(home, records):
        full = [rate for own in group.cells.values() if own[0].cell.system == "full" for rate in _rates(own)]
        chosen = [own for own in group.cells.values() if own[0].cell.system in (*_POLICIES, "naive")]
        if not full or not chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            traces = _traces(home, group, Path(folder))
            found += [point for own in chosen if (point := _point(home, group, traces, own, float(np.median(full))))]
    return found


def _groups(home: Home, records: Iterable[Record]) -> list[_Group]:
    groups: dict[tuple[object, ...], _Group] = {}
    digests: dict[str, str | None] = {}
    for record in records:
        cell = record.cell
        if cell.lane != LANE or not record.status.ok or cell.routing == REPLAY or cell.batch != 1:
            continue
        model = load_model(home, cell.model)
        if cell.model not in digests:
            digests[cell.model] = None if model.hub_id else checkpoint_digest(Path(model.location))
        told = record.environment.get("weights") or {}
        if digests[cell.model] is None or told.get("model") != digests[cell.model]:
            continue
        workload = (
            cell.model,
            cell.hardware,
            cell.dataset,
            cell.prompts,
            cell.decode_tokens,
            cell.seed,
            cell.execution,
        )
        group = groups.setdefault(workload, _Group(cell, model, {}))
        group.cells.setdefault(record.cell_key, []).append(record)
    return list(groups.values())


def _traces(home: Home, group: _Group, folder: Path) -> TraceSet:
    """Routing of the group's own prompts and of what the model answers to them."""
    cell = group.cell
    texts = load_prompts(home, cell.dataset, cell.prompts, cell.seed)
    prompts = [Prompt(str(index), cell.dataset, text) for index, text in enumerate(texts)]
    options = CollectOptions(tokens=cell.decode_tokens, temperature=0.0, early=False, stop_at_end=False, chat=False,
                             engine="transformers")  # fmt: skip
    collect(group.model.location, prompts, folder / "traces", options, name=group.model.name)
    return open_store(folder / "traces")


def _point(home: Home, group: _Group, traces: TraceSet, own: Sequence[Record], full: float) -> EmulatedPoint | None:
    cell, layers = own[0].cell, group.model.layers
    pace = emulated_pace(home, cell.hardware)
    needed = float(layers * group.model.top_k)
    counts = StepCounts(needed, 0.0, needed, 0.0, 0.0, 0.0)
    if cell.system in _POLICIES:
        predictor, known = _predictor(group.model, own[0])
        if not known:
            return None
        options = ReplayOptions(links=(pace.overlap_ratio,))
        row = replay_traces(traces, [cell.system], [cell.residency], options, predictor=predictor)[0]
        counts = _per_step(row)
    step = layers * pace.layer_seconds
    return EmulatedPoint(
        system=cell.system,
        predictor=_predictor_name(group.model, own[0]),
        residency=cell.residency,
        measured=float(np.median(_rates(own))) / full,
        simulated=step / (step + load_stall(counts, layers, step, pace.expert_seconds, pace.expert_seconds)),
        measured_hits=float(np.median([rate for one in own if isinstance(rate := metrics.hit_rate(one), float)])),
        simulated_hits=counts.hit_rate,
    )


def _per_step(row: ReplayRow) -> StepCounts:
    """One request's decode step is one token."""
    counts = (row.accesses, row.hits, row.loads, row.late, row.sent, 0.0)
    return StepCounts(*(count / row.tokens for count in counts))


def _rates(records: Sequence[Record]) -> list[float]:
    return [rate for record in records if isinstance(rate := metrics.decode_tok_s(record), float)]


def _predictor(model: Model, record: Record) -> tuple[Predictor | None, bool]:
    """The predictor that the record ran with, and whether it is known; a system without needs none."""
    if SYSTEMS[record.cell.system].predictor == "none":
        return None, True
    file = _predictor_file(model, record)
    return (None, False) if file is None else (load_predictor(file), True)


def _predictor_name(model: Model, record: Record) -> str:
    file = _predictor_file(model, record)
    return "" if file is None else file.stem


def _predictor_file(model: Model, record: Record) -> Path | None:
    """The file beside the checkpoint that has the digest of the record's predictor."""
    told = (record.environment.get("weights") or {}).get("predictor")
    files = sorted((Path(model.location) / "predictor").glob("*.safetensors"))
    return next((file for file in files if told and files_sha256([file]) == told), None)
