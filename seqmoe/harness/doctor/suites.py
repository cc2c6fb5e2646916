"""Every suite of suites/: how many of its cells can run here, by lane, and what stands in the way of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.devices import GPU, Devices
from seqmoe.harness.launch import HomeLauncher
from seqmoe.harness.record import Status
from seqmoe.harness.studies.kinds import Study, find_study
from seqmoe.simulate.synthetic import is_synthetic
from seqmoe.spec.declared import read_toml
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home
from seqmoe.spec.study import REFERENCE
from seqmoe.spec.suite import REPLAY, Cell, load_suite
from seqmoe.spec.system import SYSTEMS

COMPUTED = "computed"


@dataclass(frozen=True, slots=True)
class Need:
    """What keeps ``cells`` cells from running: why, and the command that helps; empty where none does."""

    reason: str
    command: str
    cells: int


@dataclass(frozen=True, slots=True)
class ProfileState:
    """One profile of a suite. ``lanes`` gives, by lane, how many of how many cells can run here.

    A lane's name is that of its records, with the device of measured cells: ``measured cpu``, ``measured cuda``.
    """

    cells: int
    ready: int
    lanes: dict[str, tuple[int, int]]
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class SuiteState:
    """One suite. ``command`` runs what can be run of its quick profile; ``wrong`` says what its file has wrong."""

    name: str
    figure: str
    title: str
    command: str
    profiles: dict[str, ProfileState]
    wrong: str = ""


def suite_states(home: Home, environment: Mapping[str, Any]) -> list[SuiteState]:
    """All suites of suites/, in the order of their names; nothing is started and nothing is fetched."""
    found = []
    for path in sorted(home.suites.glob("*.toml")):
        if not {"profile", "include"} & read_toml(path).keys():
            continue
        command = f"seqmoe bench {path.stem}"
        try:
            found.append(_state(home, path, command, environment))
        except InputError as error:
            found.append(SuiteState(path.stem, "", "", command, {}, str(error)))
    return found


def _state(home: Home, path: Path, command: str, environment: Mapping[str, Any]) -> SuiteState:
    study = find_study(home, path)
    if study is not None:
        profiles = {name: _study_profile(study, name) for name in study.suite.profile}
        return SuiteState(study.suite.name, study.suite.figure, study.suite.title, command, profiles)
    suite = load_suite(path)
    checks = _Checks(home, environment)
    profiles = {name: checks.profile(suite.cells(name)) for name in suite.profile}
    return SuiteState(suite.name, suite.figure, suite.title, command, profiles)


def _study_profile(study: Study, profile: str) -> ProfileState:
    """Traces of the reference model are collected when they are asked for; others must be there."""
    cells = study.suite.cells(profile)
    sources = study.suite.sources(profile)
    absent = {
        name: source
        for name, source in sources.items()
        if source != REFERENCE and "://" not in source and not Path(source).exists()
    }
    missing = Counter(cell.traces for cell in cells if cell.traces in absent)
    needs = tuple(
        Need(f"traces {absent[name]} are not on this machine", "give yours with --traces", count)
        for name, count in missing.items()
    )
    ready = len(cells) - sum(missing.values())
    return ProfileState(len(cells), ready, {COMPUTED: (ready, len(cells))}, needs)


class _Checks:
    """Asks of cells what stands in their way; a workload's answer is kept, since hundreds of cells share it."""

    def __init__(self, home: Home, environment: Mapping[str, Any]) -> None:
        self._launcher = HomeLauncher(home, environment)
        self._devices = Devices(home, environment)
        self._known: dict[tuple[object, ...], Status | None] = {}

    def profile(self, cells: Iterable[Cell]) -> ProfileState:
        """Count what can run, and group what cannot by its reason."""
        lanes: dict[str, tuple[int, int]] = {}
        needs: Counter[tuple[str, str]] = Counter()
        total = ready = 0
        for cell in cells:
            obstacle = self._obstacle(cell)
            lane = f"{cell.lane} {self._device(cell)}" if cell.lane == "measured" else cell.lane
            can, of = lanes.get(lane, (0, 0))
            lanes[lane] = (can + (obstacle is None), of + 1)
            total, ready = total + 1, ready + (obstacle is None)
            if obstacle is not None:
                needs[obstacle.reason, obstacle.hint] += 1
        grouped = tuple(Need(reason, hint, count) for (reason, hint), count in needs.most_common())
        return ProfileState(total, ready, lanes, grouped)

    def _obstacle(self, cell: Cell) -> Status | None:
        key = (
            cell.system, cell.model, cell.lane, cell.residency, cell.dataset, cell.routing, cell.predictor,
            cell.weights, cell.layers, cell.execution,
        )  # fmt: skip
        if key not in self._known:
            drawn = cell.routing == REPLAY and cell.system in SYSTEMS and is_synthetic(cell.dataset)
            self._known[key] = self._launcher.random_obstacle(cell) if drawn else self._launcher.obstacle(cell)
        return self._known[key]

    def _device(self, cell: Cell) -> str:
        return "cuda" if self._devices.of(cell) == GPU else "cpu"
