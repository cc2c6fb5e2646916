"""The kinds of studies: how each is declared, chosen from, judged in a few words, and which program computes a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.selection import suite_path
from seqmoe.harness.studies import prediction, replay
from seqmoe.harness.studies.predictors import find_predictor, outdated
from seqmoe.harness.studies.record import PredictionRecord, ReplayRecord, StudyRecord
from seqmoe.harness.studies.replay_check import check_replay
from seqmoe.spec.declared import read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home
from seqmoe.spec.prediction import STUDY, load_prediction_suite
from seqmoe.spec.replay import STUDY as REPLAY
from seqmoe.spec.replay import load_replay_suite
from seqmoe.spec.study import StudyCell, StudySuite


@dataclass(frozen=True, slots=True)
class StudyKind:
    """One kind of study.

    ``load`` reads its file, ``check`` raises `InputError` for what it names that is not there or does not fit;
    ``fields`` are what ``--only`` can name, ``words`` those of them that a bare word can;
    ``seconds`` is what a cell takes at least, told whether it is ``ready``: whether what it would train for minutes is
    there already (a cell, the digest and the location of its traces, the folder of predictors). ``outdated`` tells of a
    record whether the cell would come out differently now, by what has been trained since. ``describe`` says in a few
    words what came out, ``progress`` how far a cell is; ``module`` has the function ``compute`` that a child process
    calls (see `seqmoe.harness.studies.job`).
    """

    name: str
    record: type[StudyRecord]
    load: Callable[[Path], StudySuite]
    check: Callable[[Any, Path, Home], None]
    fields: tuple[str, ...]
    words: tuple[str, ...]
    seconds: Callable[[Any, bool], float]
    ready: Callable[[Any, str, str, Path], bool]
    outdated: Callable[[Any, str, Path], bool]
    describe: Callable[[dict[str, Any]], str]
    progress: Callable[[dict[str, Any]], str]
    module: str


KINDS = {
    STUDY: StudyKind(
        name=STUDY,
        record=PredictionRecord,
        load=load_prediction_suite,
        check=lambda suite, path, home: None,  # whatever it names is checked as it is read
        fields=("predictor", "panel", "traces", "variant", "minutes"),
        words=("predictor", "panel", "traces", "variant"),
        seconds=lambda cell, ready: 60.0 * cell.minutes,
        ready=lambda cell, content, location, folder: False,
        outdated=lambda record, location, folder: False,
        describe=prediction.describe,
        progress=prediction.progress,
        module="seqmoe.harness.studies.prediction_job",
    ),
    REPLAY: StudyKind(
        name=REPLAY,
        record=ReplayRecord,
        load=load_replay_suite,
        check=check_replay,
        fields=("panel", "traces", "predictor", "contract", "batch"),
        words=("panel", "traces", "predictor"),
        seconds=lambda cell, ready: 60.0 + (0.0 if ready else 60.0 * cell.minutes),
        ready=lambda cell, content, location, folder: (
            not cell.predictor or find_predictor(cell, content, location, folder) is not None
        ),
        outdated=outdated,
        describe=replay.describe,
        progress=replay.progress,
        module="seqmoe.harness.studies.replay_job",
    ),
}


@dataclass(frozen=True, slots=True)
class Study:
    """A declared study and its kind."""

    suite: StudySuite
    kind: StudyKind

    def fields(self, cell: StudyCell) -> dict[str, str]:
        """What ``--only`` can name of a cell."""
        return {name: str(getattr(cell, name)) for name in self.kind.fields}


def find_study(home: Home, name: str | Path) -> Study | None:
    """The study of that name in suites/, or in that TOML file; None if it is a suite of systems that serve a model."""
    path = suite_path(home, name)
    table = read_toml(path)
    if "study" not in table:
        return None
    kind = table["study"]
    if kind not in KINDS:
        raise InputError(f"{path}: study = {kind!r}; {nearest(str(kind), KINDS)}")
    suite = KINDS[kind].load(path)
    KINDS[kind].check(suite, path, home)
    return Study(suite, KINDS[kind])
