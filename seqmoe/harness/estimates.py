"""What a sweep will take before it begins: time by what earlier records took, memory and disk by arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seqmoe.harness.models import checkpoint_folder
from seqmoe.harness.record import Record, to_json
from seqmoe.harness.store import read_records
from seqmoe.harness.studies.record import ANY
from seqmoe.spec.baseline import find_baseline, load_baselines
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import RANDOM, REPLAY, Cell
from seqmoe.spec.system import SYSTEMS

# Bytes of a weight in each of the formats that models are declared in.
_WEIGHT_BYTES = {"bf16": 2.0, "f32": 4.0, "fp8": 1.0, "mxfp4": 17 / 32}
# What our runtime holds a weight in on a CPU: checkpoints become float32, random weights are bfloat16.
_LOADED_BYTES, _RANDOM_BYTES = 4.0, 2.0
# A record without an earlier one to go by: environment and statistics, then a time stamp and an id for each token.
_RECORD_BYTES, _TOKEN_BYTES = 2500, 22
# Records of this machine's store count before those of other machines and those that come with the repository.
_PLACES = (("here", ""), ("elsewhere", " elsewhere"))


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """One run of a cell. ``seconds`` is None where no record is like it; ``memory`` is the least that it needs, bytes.

    ``basis`` says what the time rests on: this cell's records, or those of cells like it, of this machine or another.
    """

    seconds: float | None
    memory: int
    disk: int
    basis: str


@dataclass(frozen=True, slots=True)
class SweepEstimate:
    """All runs of a sweep. ``seconds`` are those of runs that can be told, ``unknown`` counts the others.

    ``memory`` is the largest cell's, since cells run one at a time; ``disk`` what is written, both in bytes.
    """

    cells: Mapping[str, CellEstimate]
    seconds: float
    unknown: int
    memory: int
    disk: int


def estimate_sweep(home: Home, suite: str, host: str, runs: Sequence[Cell], own: Sequence[Record]) -> SweepEstimate:
    """Estimate ``runs`` (a cell for each of its repeats) from ``own`` records, else from those of other machines."""
    times = _Times(own, _elsewhere(home, suite, host))
    cells: dict[str, CellEstimate] = {}
    seconds, unknown = 0.0, 0
    for cell in runs:
        if cell.key not in cells:
            cells[cell.key] = _cell(home, cell, times)
        one = cells[cell.key].seconds
        seconds, unknown = seconds + (one or 0.0), unknown + (one is None)
    memory = max((cell.memory for cell in cells.values()), default=0)
    disk = sum(cells[cell.key].disk for cell in runs) + sum(_gguf_files(home, runs).values())
    return SweepEstimate(cells, seconds, unknown, memory, disk)


def memory_bytes(home: Home, cell: Cell) -> int:
    """The least that a cell's weights take of host memory; 0 where no model is loaded (simulated, replayed stand-ins).

    Our own runtime keeps all experts in the host pool and the slots beside it; of a wrapped system the weights alone
    are known, as they are declared.
    """
    if cell.lane == "simulated" or (cell.routing == REPLAY and cell.weights != RANDOM):
        return 0
    model = load_model(home, cell.model)
    pool = model.geometry.total_experts * model.expert_bytes
    if cell.system not in SYSTEMS:
        return pool + model.non_expert_bytes
    slots = 0 if SYSTEMS[cell.system].retention == "all" else round(cell.residency * pool)
    share = cell.layers / model.layers if cell.layers else 1.0
    held = _RANDOM_BYTES if cell.weights == RANDOM else _LOADED_BYTES
    return round((model.non_expert_bytes + share * (pool + slots)) * held / _bytes_of_a_weight(model))


def _gguf_files(home: Home, cells: Iterable[Cell]) -> dict[tuple[str, str], int]:
    """Bytes of the GGUF files that wrapped systems are given and that are yet to be written, by model and type."""
    baselines, found = load_baselines(home.baselines), {}
    for cell in cells:
        if cell.system in SYSTEMS or cell.lane == "simulated":
            continue
        baseline, model = find_baseline(baselines, cell.system), load_model(home, cell.model)
        key = (cell.model, baseline.gguf(cell.system))
        if baseline.model_format != "gguf" or key in found:
            continue
        name = checkpoint_folder(model).name
        if not list((home.environments / "gguf").glob(f"{name}-*-{key[1]}.gguf")):
            weights = model.geometry.total_experts * model.expert_bytes + model.non_expert_bytes
            found[key] = round(weights / _bytes_of_a_weight(model) * _WEIGHT_BYTES[key[1]])
    return found


def _bytes_of_a_weight(model: Model) -> float:
    return _WEIGHT_BYTES.get(model.format, _LOADED_BYTES)


def _cell(home: Home, cell: Cell, times: _Times) -> CellEstimate:
    seconds, size, basis = times.of(cell)
    disk = size or _RECORD_BYTES + _TOKEN_BYTES * cell.prompts * cell.decode_tokens
    return CellEstimate(seconds, memory_bytes(home, cell), disk, basis)


def _elsewhere(home: Home, suite: str, host: str) -> list[Record]:
    """Records of the suite that come with the repository, or lie here from other machines."""
    folders = (home.results, home.paper.parent / "published")
    paths = {path for folder in folders for path in folder.glob(f"*/{suite}.jsonl")}
    others = sorted(path for path in paths if not (path.parent.name == host and path.parent.parent == home.results))
    return [record for path in others for record in read_records(path, ANY) if isinstance(record, Record)]


class _Times:
    """Seconds and bytes of records, by the cell itself and by what makes cells alike."""

    def __init__(self, own: Iterable[Record], others: Iterable[Record]) -> None:
        self._groups: dict[tuple[object, ...], list[tuple[float, int]]] = {}
        for where, records in (("here", own), ("elsewhere", others)):
            for record in records:
                if record.status.ok:
                    self._add(where, record)

    def _add(self, where: str, record: Record) -> None:
        size, work = len(to_json(record)) + 1, _work(record.cell)
        self._groups.setdefault((where, record.cell_key), []).append((record.seconds, size))
        for kind in _kinds(record.cell):
            self._groups.setdefault((where, *kind), []).append((record.seconds / work, size))

    def of(self, cell: Cell) -> tuple[float | None, int, str]:
        """Seconds, bytes (0 if not known) and the basis, the nearest first: the cell, its like, the same lane's."""
        for where, place in _PLACES:
            found = self._groups.get((where, cell.key))
            if found:
                return _mean(found, 0), round(_mean(found, 1)), f"this cell's records{place}"
        for kind, name in zip(_kinds(cell), ("the same system's records", "the same lane's records"), strict=True):
            for where, place in _PLACES:
                found = self._groups.get((where, *kind))
                if found:
                    return _mean(found, 0) * _work(cell), 0, f"{name}{place}"
        return None, 0, "no record is like it"


def _kinds(cell: Cell) -> tuple[tuple[object, ...], ...]:
    """What cells have in common that take alike for the same number of tokens, the most alike first."""
    common = (cell.lane, cell.model, cell.weights, cell.layers, cell.routing)
    return (("system", *common, cell.system, cell.execution), ("lane", *common))


def _work(cell: Cell) -> int:
    """Decode steps; a simulated cell takes as long for any number."""
    return 1 if cell.lane == "simulated" else cell.prompts // cell.batch * cell.decode_tokens


def _mean(found: Sequence[tuple[float, int]], place: int) -> float:
    return sum(one[place] for one in found) / len(found)
