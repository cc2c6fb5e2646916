"""Simulated cells: computed in this process, in virtual time, on synthetic routing. No worker is started."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from seqmoe.harness.executors.base import Executor, Needed, Outcome, always
from seqmoe.harness.plan import Run
from seqmoe.harness.record import OK, Observations, PromptObservation, Status
from seqmoe.simulate.timeline.cell import Simulated, Simulator
from seqmoe.simulate.timeline.systems import SIMULATED, simulated_system
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile, load_hardware
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell
from seqmoe.spec.what_if import what_if
from seqmoe.traces.synthesis.requests import SOURCE

LANE = "simulated"
# A steady state has no more to tell in more steps: so many stand for all that a cell decodes.
STEPS = 32


def obstacle(home: Home, cell: Cell) -> Status | None:
    """Why the system cannot run the model, as the paper's crosses say, or None."""
    if cell.model in simulated_system(cell.system).unsupported:
        return Status("unsupported", f"{cell.system} does not run {load_model(home, cell.model).title} in the paper")
    return None


def check_simulated(home: Home, suite: str | Path, cells: Sequence[Cell]) -> None:
    """Raise an `InputError`, naming the suite, for cells of the lane that name what cannot be simulated."""
    where = f"suite {str(suite)!r}: lane {LANE!r}"
    for cell in cells:
        if cell.dataset != SOURCE:
            raise InputError(f"{where}: dataset = {cell.dataset!r}: simulated cells run on {SOURCE!r}")
        if cell.prompts % cell.batch:
            raise InputError(f"{where}: prompts = {cell.prompts}: must be a multiple of batch = {cell.batch}")
        try:
            _inputs(home, cell)
        except (InputError, ValueError) as error:
            raise InputError(f"{where}: {error}") from None


class SimulatedExecutor:
    """Carries out simulated runs itself and hands all others to another executor, in their order."""

    def __init__(self, home: Home, others: Executor) -> None:
        self._home, self._others = home, others
        # The last one alone is kept: it holds the workloads of a model, which are large.
        self._simulators: dict[tuple[int, float | None], Simulator] = {}

    def __enter__(self) -> SimulatedExecutor:
        self._others.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._others.__exit__(kind, error, trace)

    def execute(self, runs: Iterable[Run], needed: Needed = always) -> Iterator[tuple[Run, Outcome]]:
        """Carry out runs in order."""
        for run in runs:
            if not needed(run):
                continue
            if run.cell.lane != LANE:
                yield from self._others.execute([run])
                continue
            started, begin = datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter()
            observations = self._observe(run.cell)
            yield run, Outcome(Status(OK), observations, started, time.perf_counter() - begin)

    def _observe(self, cell: Cell) -> Observations:
        changed, calibration = what_if(cell.what_if), load_calibration(self._home)
        model, hardware = _inputs(self._home, cell)
        key = (cell.seed, changed.recall)
        if key not in self._simulators:
            own = Simulator(self._home, calibration, cell.seed)
            recall = None if changed.recall is None else replace(own.recall(model), next_step=changed.recall)
            self._simulators = {key: Simulator(self._home, calibration, cell.seed, recall)}
        found = self._simulators[key].run(
            cell.system, model, changed.of(hardware), cell.residency, cell.batch, cell.decode_tokens
        )
        return observations_of(found, cell, model)


def observations_of(found: Simulated, cell: Cell, model: Model) -> Observations:
    """Time stamps in virtual nanoseconds, batches one after another, and counts over all of their decode steps."""
    step, first = round(found.time.total * 1e9), round(found.ttft_s * 1e9)
    prompts = []
    for place in range(cell.prompts):
        begin = place // cell.batch * (first + STEPS * step)
        tokens = tuple(begin + first + index * step for index in range(STEPS + 1))
        prompts.append(PromptObservation(begin, tokens, (None,) * len(tokens)))
    steps = STEPS * cell.prompts // cell.batch
    counts, size = found.counts, model.expert_bytes * steps
    loads = SIMULATED[cell.system].misses == "load"
    stats = {
        "routing": SOURCE,
        "needed": counts.needed * steps,
        "hits": counts.hits * steps,
        "hit_rate": counts.hit_rate,
        "bytes_on_demand": counts.loads * size if loads else 0.0,
        "bytes_prefetched": counts.sent * size,
        "bytes_wasted": counts.wasted * size,
        "bytes_late": counts.late * size,
        "overlap_ratio": found.link,
        "breakdown": {name: seconds * steps for name, seconds in asdict(found.time).items()},
    }
    return Observations(tuple(prompts), stats)


def _inputs(home: Home, cell: Cell) -> tuple[Model, HardwareProfile]:
    """Model and machine of a cell; `InputError` or ``ValueError`` for what does not exist or does not fit."""
    simulated_system(cell.system)
    model, hardware = load_model(home, cell.model), load_hardware(home, cell.hardware)
    model.geometry.slots(cell.residency, cell.batch)
    for what, table, present in (("model", "decoding", model.decoding), ("hardware", "rates", hardware.rates)):
        if present is None:
            name = model.name if what == "model" else hardware.name
            raise InputError(f"{what} {name!r} has no [{table}]; the simulator needs it")
    return model, hardware
