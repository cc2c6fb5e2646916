"""Replay studies: cache policies judged by hit rate on routing traces; a profile expands to cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.errors import nearest
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.include import load_with_includes
from seqmoe.spec.paths import Home
from seqmoe.spec.prediction import PREDICTORS, TRAINED
from seqmoe.spec.study import REFERENCE, SCHEMA, cell_key, named_sources, profile_of, trace_name

STUDY = "replay"
CONTRACTS = ("event", "sequential")
UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class ReplayCell:
    """Policies that are replayed together, on one set of traces with one predictor.

    ``policies`` are names of `seqmoe.simulate.policies`; those that prefetch are run with each of ``links``: the name
    of a hardware profile stands for its overlap ratio, `UNLIMITED` for any number, other words are experts per layer.
    ``predictor`` is its kind, empty where no policy needs one, and ``minutes`` what it is trained for if there is none
    yet. ``warm_up`` decode steps of every request do not count.
    """

    suite: str
    panel: str
    traces: str
    policies: tuple[str, ...]
    residencies: tuple[float, ...]
    links: tuple[str, ...] = ()
    predictor: str = ""
    minutes: float = 0.0
    contract: str = "event"
    batch: int = 1
    stagger: int = 0
    warm_up: int = 0
    seed: int = 0

    @property
    def key(self) -> str:
        """Twelve hex digits that identify the cell."""
        return cell_key(self)

    @property
    def label(self) -> str:
        """A short name for progress and tables."""
        return f"{self.panel} on {self.traces}"

    @property
    def detail(self) -> str:
        """The label and what else tells a cell from its neighbours."""
        together = f", batches of {self.batch}" if self.batch > 1 else ""
        links = f"; links {', '.join(self.links)}" if self.links else ""
        return f"{self.label}{together}, {self.contract} contract: {', '.join(self.policies)}{links}"


@dataclass(frozen=True, slots=True)
class ReplayBlock:
    """Cells with the same policies, one for each of ``batches``; see `ReplayCell` for the other fields.

    ``minutes_given_traces`` is the training budget on traces of a person's own (``--traces``); 0 means the same.
    """

    panel: str
    policies: tuple[str, ...]
    residencies: tuple[float, ...]
    traces: str = REFERENCE
    links: tuple[str, ...] = ()
    predictor: str = ""
    minutes: float = 0.0
    minutes_given_traces: float = 0.0
    contract: str = "event"
    batches: tuple[int, ...] = (1,)
    stagger: int = 0
    warm_up: int = 0

    def __post_init__(self) -> None:
        for name in ("policies", "residencies", "batches"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: the block would have no cells")
        for residency in self.residencies:
            if not 0 < residency <= 1:
                raise ValueError(f"residencies: {residency}: must lie in (0, 1], for example 0.45")
        for link in self.links:
            _check_link(link)
        if self.contract not in CONTRACTS:
            raise ValueError(f"contract = {self.contract!r}; {nearest(self.contract, CONTRACTS)}")
        if self.predictor and self.predictor not in PREDICTORS:
            raise ValueError(f"predictor = {self.predictor!r}; {nearest(self.predictor, PREDICTORS)}")
        if min(self.minutes, self.minutes_given_traces) < 0:
            raise ValueError("minutes and minutes_given_traces must not be negative")
        if self.predictor in TRAINED and not self.minutes:
            raise ValueError(f"minutes is missing: {self.predictor} must be told how long to train")
        if min(self.batches) < 1 or min(self.stagger, self.warm_up) < 0:
            raise ValueError("batches must be at least 1, stagger and warm_up not negative")


@dataclass(frozen=True, slots=True)
class ReplayProfile:
    """One size of a study."""

    block: tuple[ReplayBlock, ...]

    def __post_init__(self) -> None:
        if not self.block:
            raise ValueError("block is empty: the profile would have no cells")


@dataclass(frozen=True, slots=True)
class ReplaySuite:
    """A declared replay study. ``figure`` names the paper's figure that it reproduces."""

    schema: int
    name: str
    title: str
    figure: str
    study: str
    profile: dict[str, ReplayProfile]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the suite")
        if self.study != STUDY:
            raise ValueError(f"study = {self.study!r}: this reads {STUDY!r}")

    def cells(self, profile: str, seed: int = 0, traces: str | None = None) -> list[ReplayCell]:
        """All cells of a profile in declaration order, without duplicates; ``traces`` replaces the blocks' own."""
        cells: dict[str, ReplayCell] = {}
        for block in profile_of(self.name, self.profile, profile).block:
            given = block.minutes_given_traces if traces is not None else 0.0
            for batch in block.batches:
                cell = ReplayCell(
                    suite=self.name,
                    panel=block.panel,
                    traces=trace_name(block.traces) if traces is None else traces,
                    policies=block.policies,
                    residencies=block.residencies,
                    links=block.links,
                    predictor=block.predictor,
                    minutes=(given or block.minutes) if block.predictor in TRAINED else 0.0,
                    contract=block.contract,
                    batch=batch,
                    stagger=block.stagger,
                    warm_up=block.warm_up,
                    seed=seed,
                )
                cells.setdefault(cell.key, cell)
        return list(cells.values())

    def sources(self, profile: str) -> dict[str, str]:
        """Where the traces are that a profile's blocks declare, by their names."""
        return named_sources(block.traces for block in profile_of(self.name, self.profile, profile).block)


def load_replay_suite(path: Path) -> ReplaySuite:
    """Read and validate the file of a replay study."""
    return load_with_includes(ReplaySuite, path)


def experts_per_layer(home: Home, link: str) -> float:
    """What a link's name stands for; an `InputError` for one that is neither a number nor a hardware profile."""
    if link == UNLIMITED:
        return math.inf
    number = _number(link)
    return load_hardware(home, link).emulated_overlap_ratio if number is None else number


def _check_link(link: str) -> None:
    """Raise ``ValueError`` for a number that no link has; whether a name is that of a profile is not known here."""
    number = _number(link)
    if number is not None and not 0 < number < math.inf:
        raise ValueError(
            f"links: {link!r}: must be experts per layer above 0, {UNLIMITED!r}, or the name of a hardware profile"
        )


def _number(link: str) -> float | None:
    try:
        return float(link)
    except ValueError:
        return None
