"""Records of systems by place: throughput, shares of full load, hit rates, and shares of a step's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from seqmoe.harness import metrics
from seqmoe.harness.claims.context import SHORT, Context
from seqmoe.harness.claims.evidence import Sample
from seqmoe.harness.claims.metrics.base import Place, Samples
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import summarize
from seqmoe.spec.hardware import load_hardware

# The paper's names of systems that are rows of ours; all others go by the paper's name.
OURS = {"SeqMoE": "seqmoe", "FullLoad": "full"}
_OTHER_PANELS = ("decode-long", "ttft", "batch")
Measure = Callable[[Record], float | metrics.Missing]


def repeats(
    context: Context, model: str, system: str, residency: float, measure: Measure, paper_machine: bool = True
) -> dict[Place, dict[int, float]]:
    """What ``measure`` gives of each repeat, by place, of the newest cell there: batch 1, short decoding.

    ``model`` is a declared title. With ``paper_machine`` only cells on the paper's machine for the model count (by the
    hardware profile, or by the name of the GPU), unless the paper does not have the model.
    """
    name = OURS.get(system, system)
    share = 1.0 if name in ("full", "eager", "sync") else residency
    cells: dict[Place, dict[str, list[Record]]] = {}
    for record in context.runs:
        cell = record.cell
        if (cell.model, cell.residency, cell.batch) != (context.models[model].name, share, 1):
            continue
        if cell.panel in _OTHER_PANELS or not record.status.ok or name not in names_of(record):
            continue
        if paper_machine and not _on_paper_machine(context, record, model):
            continue
        cells.setdefault(place_of(context, record), {}).setdefault(record.cell_key, []).append(record)
    found = {}
    for place, keyed in cells.items():
        newest = max(keyed.values(), key=lambda records: _rank(records))
        values = {record.repeat: measure(record) for record in newest}
        known = {repeat: value for repeat, value in values.items() if isinstance(value, float)}
        if known:
            found[place] = known
    return found


def samples(values: dict[Place, dict[int, float]], factor: float = 1.0) -> Samples:
    """Median and interval over the repeats; what is computed once has none."""
    return {place: sample_of(found.values(), factor) for place, found in values.items()}


def ratios(over: dict[Place, dict[int, float]], under: dict[Place, dict[int, float]]) -> Samples:
    """Percent of one another, repeat by repeat, where both were run at the same place."""
    found = {}
    for place, values in over.items():
        base = under.get(place, {})
        shared = [values[repeat] / base[repeat] for repeat in values if repeat in base]
        if shared:
            found[place] = sample_of(shared, 100.0)
    return found


def sample_of(values: Iterable[float], factor: float) -> Sample:
    """Median of the repeats times ``factor``, with its interval for more than one."""
    numbers = [factor * value for value in values]
    if len(numbers) == 1:
        return Sample(numbers[0])
    summary = summarize(numbers)
    return Sample(summary.median, summary.low, summary.high)


def names_of(record: Record) -> tuple[str, ...]:
    """What the record's system may be asked for as; full load in another mode of execution is that mode."""
    cell = record.cell
    if cell.system == "full" and cell.execution in ("eager", "sync"):
        return (cell.execution,)
    return (cell.system,)


def place_of(context: Context, record: Record) -> Place:
    """Lane, host, and what was run in words."""
    cell, host = record.cell, str(record.environment.get("host", "unknown host"))
    if cell.lane == "simulated":
        return Place(cell.lane, host, "simulator, synthetic routing", synthetic=True)
    if cell.lane == "emulated":
        title = load_hardware(context.home, cell.hardware).title.split(",")[0].removeprefix("NVIDIA ")
        routing = "replayed routing" if cell.routing == "replay" else "its own routing"
        return Place(cell.lane, host, f"CPU runtime at the pace of an {title}, {routing}")
    return Place(cell.lane, host, "our runtime on this host")


def others(context: Context) -> list[str]:
    """Declared models that the paper does not have but records do, by their titles."""
    printed, seen = set(context.printed_models()), {record.cell.model for record in context.runs}
    return [title for title, model in context.models.items() if title not in printed and model.name in seen]


def _rank(records: list[Record]) -> tuple[bool, str]:
    """Cells of figure 6's own panel first, then the newest."""
    return records[0].cell.panel == SHORT, max(record.started for record in records)


def _on_paper_machine(context: Context, record: Record, model: str) -> bool:
    machine = context.hardware(model)
    if not machine:
        return True
    if record.cell.lane == "measured":
        gpus = record.environment.get("gpus", [])
        return any(machine in str(gpu.get("name", gpu) if isinstance(gpu, dict) else gpu) for gpu in gpus)
    return machine in load_hardware(context.home, record.cell.hardware).title
