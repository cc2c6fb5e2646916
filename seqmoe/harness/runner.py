"""A sweep: a suite's cells become records, one after another, each on the disk before the next begins."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seqmoe.harness import link_check, same_answer
from seqmoe.harness.conditions import model_digest
from seqmoe.harness.declared_cells import check_cells
from seqmoe.harness.devices import CPU, OWN_DEVICE
from seqmoe.harness.dilations import Dilations
from seqmoe.harness.estimates import SweepEstimate, estimate_sweep
from seqmoe.harness.executors.base import Executor, Outcome
from seqmoe.harness.executors.cluster.agent import Order
from seqmoe.harness.executors.cluster.site import ClusterOptions
from seqmoe.harness.executors.site import LocalSite, Site
from seqmoe.harness.failures import failed_cells
from seqmoe.harness.fingerprint import fingerprint, load_average
from seqmoe.harness.interruption import interruptible
from seqmoe.harness.launch import HomeLauncher, Launcher
from seqmoe.harness.plan import Plan, Run, make_plan
from seqmoe.harness.progress import ProgressReport, SilentProgress
from seqmoe.harness.random_cells import RandomConfig
from seqmoe.harness.record import SCHEMA, Observations, Record, Status
from seqmoe.harness.replays import Replays
from seqmoe.harness.selection import choose, find_suite
from seqmoe.harness.store import latest, read_records, store_path
from seqmoe.harness.stores import Stores, stores_place
from seqmoe.spec.choice import MOST_THREADS
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import REPLAY, Cell, Suite

_log = logging.getLogger(__name__)
# A plan lists every run.
_MOST_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep did. ``records`` holds the newest of every chosen cell and repeat, those of earlier sweeps too.

    ``path`` is their file, or the folder of all hosts where the runs belong to several; ``host`` is this machine.
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
    cluster: ClusterOptions | None = None,
) -> SweepResult:
    """Run what the store of this host does not have yet of a suite (a name of suites/, or a file).

    ``only`` chooses cells (see `seqmoe.harness.selection.choose`), ``repeats`` overrides the profile's, ``timeout`` is
    in seconds per request, ``resume=False`` runs everything again. ``traces`` and ``predictor`` are for cells with
    replayed routing, see `seqmoe.harness.replays.Replays`. ``random`` puts a declared model with random weights in the
    place of the cells' own, see `seqmoe.harness.random_cells`. ``device`` is where our own systems' measured cells run
    (see `seqmoe.harness.devices`). With a ``cluster`` its nodes carry out the runs, and every record goes into the
    store of its node's host. A cell that fails is recorded once and leaves the rest alone. Raises `InputError` for
    anything declared wrongly, before anything runs; ``KeyboardInterrupt`` on SIGINT and SIGTERM, with every finished
    run stored and no worker left.
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
    for option, number, most in (("--repeat", count, _MOST_REPEATS), ("--threads", threads, MOST_THREADS)):
        if not 1 <= number <= most:
            raise InputError(f"{option} {number}: must lie between 1 and {most}")
    environment = fingerprint(home) | {"threads": threads} | ({OWN_DEVICE: device} if device != CPU else {})
    if not any(cell.routing == REPLAY for cell in cells):
        for option, given in (("--traces", traces), ("--predictor", predictor)):
            if given is not None:
                raise InputError(f"{option} {given}: no chosen cell of suite {found.name!r} replays routing")
    replays.check(cells)
    if not dry_run and cluster is None:
        here = HomeLauncher(home, environment, replays)
        replays.prepare([cell for cell in cells if here.random_obstacle(cell) is None], _log.warning)
    own = LocalSite(home, environment, replays, threads, timeout, launcher)
    order = Order(home.work, tuple(cells), threads, timeout, device, traces, predictor, launcher)

    def plan_for(site: Site, records: Sequence[Record]) -> Plan:
        hosts = {cell.key: site.environment_of(cell)["host"] for cell in cells}
        history: dict[str, list[Record]] = {}
        for record in records:
            if record.environment.get("host") == hosts.get(record.cell_key):
                history.setdefault(record.cell_key, []).append(record)
        return make_plan(cells, count, history, site.group, site.obstacle, site.environment_of, resume)

    def result(plan: Plan, path: Path, written: int, records: Sequence[Record]) -> SweepResult:
        keys = {cell.key for cell in cells}
        kept = tuple(record for record in latest(records) if record.cell_key in keys)
        planned = {run.cell.key for run in plan.runs} if dry_run else set()
        failed = failed_cells((cell for cell in cells if cell.key not in planned), records)
        return SweepResult(found, environment["host"], path, tuple(cells), plan, written, kept, failed)

    with nullcontext(own) if cluster is None else cluster.open(home, order, own) as site:
        hosts = list(dict.fromkeys(site.environment_of(cell)["host"] for cell in cells))
        path = stores_place(home.results, found.name, hosts)
        if dry_run:
            records = [r for host in hosts for r in read_records(store_path(home.results, host, found.name))]
            planned = plan_for(site, records)
            runs = [run.cell for run in planned.runs]
            estimate = estimate_sweep(home, found.name, environment["host"], runs, records)
            return replace(result(planned, path, 0, records), estimate=estimate)
        with interruptible(), Stores(home.results, found.name, hosts) as stores:
            plan, before = plan_for(site, stores.records), len(stores.records)
            with site.executor(Dilations(stores.records)) as executor:
                Sweep(stores, site, progress or SilentProgress()).carry_out(plan, executor)
            return result(plan, stores.place, len(stores.records) - before, stores.records)


class Sweep:
    """Carries out a plan and stores every outcome as it comes."""

    def __init__(self, stores: Stores, site: Site, progress: ProgressReport) -> None:
        self._stores = stores
        self._site = site
        self._progress = progress
        self._failed: set[str] = set()

    def carry_out(self, plan: Plan, executor: Executor) -> None:
        """Record the plan's obstacles, then its runs."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        for cell, status in plan.obstacles:
            outcome = Outcome(status, Observations(), now, 0.0)
            self._stores.append(self._record(Run(cell, 0, ""), outcome, status, self._environment(cell, outcome)))
        self._progress.start(plan.runs)
        try:
            for run, outcome in executor.execute(plan.runs, self._needed):
                self._end(run, outcome)
        except KeyboardInterrupt:
            _log.warning(
                "interrupted; finished runs are kept in %s: the same command goes on from there", self._stores.place
            )
            raise
        finally:
            self._progress.stop()

    def _needed(self, run: Run) -> bool:
        """Whether its cell has not failed meanwhile."""
        if run.cell.key in self._failed:
            self._progress.skip(run)
            return False
        self._progress.begin(run)
        return True

    def _end(self, run: Run, outcome: Outcome) -> None:
        cell, observations = run.cell, outcome.observations
        environment = self._environment(cell, outcome)
        # Other hosts and devices may round otherwise: an answer is held to full load of its own.
        known = same_answer.of_device(self._stores.of(environment["host"]).records, environment.get("device"))
        model = model_digest(environment)
        status = same_answer.verdict(cell, outcome.status, observations, known, model)
        record = self._record(run, outcome, link_check.verdict(cell, status, observations), environment)
        if not record.status.ok and not link_check.may_pass_later(record):
            self._failed.add(cell.key)
        self._stores.append(record)
        self._progress.end(run, record)

    def _environment(self, cell: Cell, outcome: Outcome) -> dict[str, Any]:
        if outcome.environment is not None:
            return dict(outcome.environment)
        return {**self._site.environment_of(cell), "load_average": load_average()}

    def _record(self, run: Run, outcome: Outcome, status: Status, environment: dict[str, Any]) -> Record:
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
