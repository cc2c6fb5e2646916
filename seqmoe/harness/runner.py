"""A sweep: a suite's cells become records, one after another, each on the disk before the next begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seqmoe.harness import link_check, same_answer
from seqmoe.harness.conditions import model_digest
from seqmoe.harness.declared_cells import check_cells
from seqmoe.harness.devices import CPU, OWN_DEVICE, Devices
from seqmoe.harness.dilations import Dilations
from seqmoe.harness.estimates import SweepEstimate, estimate_sweep
from seqmoe.harness.executors.base import Executor, Outcome
from seqmoe.harness.executors.local import LocalExecutor
from seqmoe.harness.failures import failed_cells
from seqmoe.harness.fingerprint import fingerprint, load_average
from seqmoe.harness.interruption import interruptible
from seqmoe.harness.launch import HomeLauncher, Launcher
from seqmoe.harness.plan import Plan, Run, make_plan
from seqmoe.harness.progress import ProgressReport, SilentProgress
from seqmoe.harness.random_cells import RandomConfig
from seqmoe.harness.record import SCHEMA, Observations, Record, Status
from seqmoe.harness.replays import Replays
from seqmoe.harness.request import Requests
from seqmoe.harness.selection import choose, find_suite
from seqmoe.harness.simulated import SimulatedExecutor
from seqmoe.harness.store import Store, latest, read_records, store_path
from seqmoe.harness.weights import Weights
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import REPLAY, Cell, Suite

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep did. ``records`` holds the newest of every chosen cell and repeat, those of earlier sweeps too.

    ``failed`` are the chosen cells that ended in a failure, now or in an earlier sweep; of a dry run, those that would
    not be tried again. A dry run has an ``estimate`` of what its runs will take.
    """

    suite: Suite
    host: str
    path: Path
    cells: tuple[Cell, ...]
    plan: Plan
    written: int
    records: tuple[Record, ...]
    failed: tuple[Cell, ...]
    estimate: SweepEstimate | None = None

    @property
    def to_run(self) -> tuple[Run, ...]:
        """The runs that were, or of a dry run would be, carried out."""
        return self.plan.runs

    @property
    def tried(self) -> set[str]:
        """Keys of the cells that this sweep has run."""
        return {run.cell.key for run in self.plan.runs}


def run_suite(
    home: Home,
    suite: str | Path,
    *,
    profile: str = "quick",
    only: Sequence[str] = (),
    repeats: int | None = None,
    seed: int = 0,
    resume: bool = True,
    dry_run: bool = False,
    progress: ProgressReport | None = None,
    threads: int = 1,
    timeout: float = 900.0,
    traces: str | None = None,
    predictor: Path | None = None,
    random: RandomConfig | None = None,
    device: str = CPU,
    launcher: Launcher | None = None,
) -> SweepResult:
    """Run what the store of this host does not have yet of a suite (a name of suites/, or a file).

    ``only`` chooses cells (see `seqmoe.harness.selection.choose`), ``repeats`` overrides the profile's, ``timeout`` is
    in seconds per request, ``resume=False`` runs everything again. ``traces`` and ``predictor`` are for cells with
    replayed routing, see `seqmoe.harness.replays.Replays`. ``random`` puts a declared model with random weights in the
    place of the cells' own, see `seqmoe.harness.random_cells`. ``device`` is where our own systems' measured cells run
    (see `seqmoe.harness.devices`). A cell that fails is recorded once and leaves the
    rest alone. Raises `InputError` for anything declared wrongly, before anything runs; ``KeyboardInterrupt`` on SIGINT
    and SIGTERM, with every finished run stored and no worker left.
    """
    found = find_suite(home, suite)
    cells = found.cells(profile, seed)
    if random is not None and random.location is not None:
        traces = random.location
    replays = Replays(home, traces, predictor)
    if random is not None:
        cells = random.cells(home, cells, replays, predictor)
    check_cells(home, suite, cells)
    cells = choose(cells, only) if only else cells
    count = found.profile[profile].repeats if repeats is None else repeats
    if min(count, threads) < 1:
        raise InputError(f"--repeat {count}, --threads {threads}: both must be at least 1")
    environment = fingerprint(home) | {"threads": threads} | ({OWN_DEVICE: device} if device != CPU else {})
    if not any(cell.routing == REPLAY for cell in cells):
        for option, given in (("--traces", traces), ("--predictor", predictor)):
            if given is not None:
                raise InputError(f"{option} {given}: no chosen cell of suite {found.name!r} replays routing")
    if not dry_run:
        replays.prepare(cells, _log.warning)
    launch = launcher or HomeLauncher(home, environment, replays)
    devices, weights = Devices(home, environment), Weights(home, replays)
    path = store_path(home.results, environment["host"], found.name)

    def environment_of(cell: Cell) -> dict[str, Any]:
        return environment | {"device": devices.of(cell), "weights": weights.of(cell)}

    def plan_for(records: Sequence[Record]) -> Plan:
        history: dict[str, list[Record]] = {}
        for record in records:
            history.setdefault(record.cell_key, []).append(record)
        return make_plan(cells, count, history, launch.group, launch.obstacle, environment_of, resume)

    def result(plan: Plan, written: int, records: Sequence[Record]) -> SweepResult:
        keys = {cell.key for cell in cells}
        kept = tuple(record for record in latest(records) if record.cell_key in keys)
        planned = {run.cell.key for run in plan.runs} if dry_run else set()
        failed = failed_cells((cell for cell in cells if cell.key not in planned), records)
        return SweepResult(found, environment["host"], path, tuple(cells), plan, written, kept, failed)

    if dry_run:
        records = read_records(path)
        planned = plan_for(records)
        runs = [run.cell for run in planned.runs]
        found_estimate = estimate_sweep(home, found.name, environment["host"], runs, records)
        return replace(result(planned, 0, records), estimate=found_estimate)
    with interruptible(), Store(path) as store:
        plan, before = plan_for(store.records), len(store.records)
        requests = Requests(home, environment, threads, replays, Dilations(store.records))
        with SimulatedExecutor(home, LocalExecutor(launch, requests, threads, timeout)) as executor:
            Sweep(store, environment_of, progress or SilentProgress()).carry_out(plan, executor)
        return result(plan, len(store.records) - before, store.records)


class Sweep:
    """Carries out a plan and stores every outcome as it comes."""

    def __init__(
        self, store: Store[Record], environment_of: Callable[[Cell], Mapping[str, Any]], progress: ProgressReport
    ) -> None:
        self._store = store
        self._environment_of = environment_of
        self._progress = progress
        self._failed: set[str] = set()

    def carry_out(self, plan: Plan, executor: Executor) -> None:
        """Record the plan's obstacles, then its runs."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        for cell, status in plan.obstacles:
            self._store.append(self._record(Run(cell, 0, ""), Outcome(status, Observations(), now, 0.0), status))
        self._progress.start(plan.runs)
        try:
            for run, outcome in executor.execute(self._needed(plan.runs)):
                self._end(run, outcome)
        except KeyboardInterrupt:
            _log.warning(
                "interrupted; finished runs are kept in %s: the same command goes on from there", self._store.path
            )
            raise
        finally:
            self._progress.stop()

    def _needed(self, runs: Sequence[Run]) -> Iterator[Run]:
        """Runs whose cell has not failed meanwhile."""
        for run in runs:
            if run.cell.key in self._failed:
                self._progress.skip(run)
            else:
                self._progress.begin(run)
                yield run

    def _end(self, run: Run, outcome: Outcome) -> None:
        cell, observations = run.cell, outcome.observations
        model = model_digest(self._environment_of(cell))
        status = same_answer.verdict(cell, outcome.status, observations, self._store.records, model)
        record = self._record(run, outcome, link_check.verdict(cell, status, observations))
        if not record.status.ok and not link_check.may_pass_later(record):
            self._failed.add(cell.key)
        self._store.append(record)
        self._progress.end(run, record)

    def _record(self, run: Run, outcome: Outcome, status: Status) -> Record:
        environment = dict(self._environment_of(run.cell)) | {"load_average": load_average()}
        return Record(
            schema=SCHEMA,
            cell=run.cell,
            cell_key=run.cell.key,
            repeat=run.repeat,
            status=status,
            observations=outcome.observations,
            environment=environment,
            started=outcome.started,
            seconds=round(outcome.seconds, 3),
        )
