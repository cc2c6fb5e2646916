"""Carrying out a study: cells that the store does not have become records, each on the disk as soon as it is there."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.failures import OBSTACLES, killed_from_outside
from seqmoe.harness.fingerprint import fingerprint, load_average
from seqmoe.harness.interruption import interruptible
from seqmoe.harness.record import Status
from seqmoe.harness.selection import choose
from seqmoe.harness.store import Store, read_records, store_path
from seqmoe.harness.studies.estimates import StudyEstimate, estimate_study
from seqmoe.harness.studies.kinds import Study
from seqmoe.harness.studies.parallel import Begun, Ended, Parallel, Progressed, Task
from seqmoe.harness.studies.pending import newest, pending, predictors_in, seconds
from seqmoe.harness.studies.progress import Estimate, SilentProgress, StudyProgress
from seqmoe.harness.studies.record import SCHEMA, STUDIES, StudyRecord
from seqmoe.harness.studies.sources import Source, find_sources
from seqmoe.spec.choice import MOST_THREADS
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home
from seqmoe.spec.study import StudyCell, StudySuite, trace_name

_log = logging.getLogger(__name__)
JOB = (sys.executable, "-m", "seqmoe.harness.studies.job")
# Beyond its budget a cell evaluates, on traces of whatever size; this only ends what hangs.
_PATIENCE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class StudyResult:
    """What was done. ``records`` are the newest of every chosen cell on these traces, those of earlier times too.

    ``to_run`` are the cells that were, or of a dry run would be, computed, in about ``seconds``; ``failed`` those whose
    last record is a failure. A dry run has an ``estimate`` of memory and disk.
    """

    suite: StudySuite
    host: str
    path: Path
    cells: tuple[StudyCell, ...]
    to_run: tuple[StudyCell, ...]
    seconds: float
    written: int
    records: tuple[StudyRecord, ...]
    failed: tuple[StudyCell, ...]
    estimate: StudyEstimate | None = None

    @property
    def tried(self) -> set[str]:
        """Keys of the cells that were computed now."""
        return {cell.key for cell in self.to_run}


def run_study(
    home: Home,
    study: Study,
    *,
    profile: str = "quick",
    only: Sequence[str] = (),
    seed: int = 0,
    traces: str | None = None,
    resume: bool = True,
    dry_run: bool = False,
    threads: int = 1,
    progress: StudyProgress | None = None,
    command: Sequence[str] = JOB,
) -> StudyResult:
    """Compute what the store of this host does not have yet of a study.

    ``traces`` (a path or an address) takes the place of those that the suite declares. As many cells run side by side
    as there are cores for ``threads`` each. Raises `InputError` for anything that is wrong before anything runs, and
    ``KeyboardInterrupt`` on SIGINT and SIGTERM, with every finished cell stored and no process left; what a training
    has saved by then is gone on from.
    """
    cells: list[StudyCell] = list(study.suite.cells(profile, seed, None if traces is None else trace_name(traces)))
    if only:
        cells = choose(cells, only, study.kind.fields, study.kind.words)
    if not 1 <= threads <= MOST_THREADS:
        raise InputError(f"--threads {threads}: must lie between 1 and {MOST_THREADS}")
    environment = fingerprint(home) | {"threads": threads}
    path = store_path(home.results, environment["host"], study.suite.name)
    told = progress or SilentProgress()
    locations = study.suite.sources(profile) if traces is None else {trace_name(traces): traces}
    sources = find_sources(home, (cell.traces for cell in cells), locations, told.say, collect=not dry_run)

    def estimate(to_run: Sequence[StudyCell]) -> Estimate:
        jobs = max(1, int(environment["cpu"]["usable_cores"]) // threads)
        return Estimate(to_run, jobs, lambda cell: seconds(study, cell, sources, path.parent))

    def result(before: int, records: Sequence[StudyRecord], to_run: Sequence[StudyCell], about: float) -> StudyResult:
        last = newest(cells, sources, records)
        kept = tuple(last[cell.key] for cell in cells if cell.key in last)
        bad = {r.cell_key for r in kept if not r.status.ok and r.status.kind not in OBSTACLES}
        failed = tuple(cell for cell in cells if cell.key in bad and not (dry_run and cell in to_run))
        host = str(environment["host"])
        written = len(records) - before
        return StudyResult(study.suite, host, path, tuple(cells), tuple(to_run), about, written, kept, failed)

    if dry_run:
        records = read_records(path, STUDIES)
        to_run = pending(study, cells, sources, records, environment, resume, path.parent)
        found = result(len(records), records, to_run, estimate(to_run).seconds())
        places = {cell.key: sources[cell.traces].location if cell.traces in sources else None for cell in to_run}
        jobs = estimate(to_run).jobs
        return dataclasses.replace(found, estimate=estimate_study(home, study.suite.name, places, jobs, path.parent))
    with interruptible(), Store(path, STUDIES) as store:
        before = len(store.records)
        to_run = pending(study, cells, sources, store.records, environment, resume, path.parent)
        expected = estimate(to_run)
        about = expected.seconds()
        for cell in cells:
            if cell not in to_run:  # an end may come between its record and this
                _clear(path.parent, cell)
        try:
            _carry_out(study, to_run, sources, store, environment, told, expected, resume, command)
        except KeyboardInterrupt:
            _log.warning("interrupted; finished cells are kept in %s: the same command goes on from there", path)
            raise
        return result(before, store.records, to_run, about)


def _carry_out(
    study: Study,
    cells: Sequence[StudyCell],
    sources: Mapping[str, Source],
    store: Store[StudyRecord],
    environment: Mapping[str, Any],
    progress: StudyProgress,
    expected: Estimate,
    resume: bool,
    command: Sequence[str],
) -> None:
    folder, threads = store.path.parent, int(environment["threads"])
    tasks = [_task(study, cell, sources[cell.traces], folder, resume) for cell in cells]
    progress.start(expected)
    try:
        with Parallel(command, expected.jobs, threads) as children:
            for news in children.carry_out(tasks):
                if isinstance(news, Begun):
                    progress.begin(news.cell)
                elif isinstance(news, Progressed):
                    progress.event(news.cell, study.kind.progress(dict(news.event)))
                else:
                    store.append(_record(study, news, sources[news.cell.traces], environment))
                    if not killed_from_outside(news.status):
                        _clear(folder, news.cell)
                    words = study.kind.describe(news.observations) if news.status.ok else _in_short(news.status)
                    progress.end(news.cell, news.status, words, news.seconds)
    finally:
        progress.stop()


def _in_short(status: Status) -> str:
    """The kind and the last words: of a traceback, those that say what was wrong."""
    lines = [line.strip() for line in status.reason.splitlines() if line.strip()]
    return f"{status.kind}: {lines[-1][:200] if lines else 'no reason was given'}"


def _task(study: Study, cell: StudyCell, source: Source, folder: Path, resume: bool) -> Task:
    work = _work(folder, cell)
    if not resume:
        shutil.rmtree(work, ignore_errors=True)
    keep = predictors_in(folder) / f"{cell.key}.safetensors"
    request = {
        "study": study.kind.name,
        "cell": dataclasses.asdict(cell),  # type: ignore[call-overload]
        "source": source.location,
        # What was begun on other traces is not gone on from.
        "work": str(work / source.digest),
        "keep": str(keep),
    }
    return Task(cell, request, 3 * study.kind.seconds(cell, False) + _PATIENCE_SECONDS)


def _work(folder: Path, cell: StudyCell) -> Path:
    return folder / ".work" / cell.key


def _clear(folder: Path, cell: StudyCell) -> None:
    """Remove what an interrupted cell would go on from, once there is nothing to go on with."""
    shutil.rmtree(_work(folder, cell), ignore_errors=True)


def _record(study: Study, ended: Ended, source: Source, environment: Mapping[str, Any]) -> StudyRecord:
    about = source.about | ended.observations.get("traces", {})
    device = ended.observations.get("training", {}).get("device", "cpu")
    return study.kind.record(
        schema=SCHEMA,
        study=study.kind.name,
        cell=ended.cell,
        cell_key=ended.cell.key,
        status=ended.status,
        observations=ended.observations | {"traces": about},
        environment=dict(environment) | {"device": device, "load_average": load_average()},
        started=ended.started,
        seconds=round(ended.seconds, 3),
    )
