"""Suites: a TOML file declares what is compared; a profile of it expands to cells."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.include import load_with_includes
from seqmoe.spec.system import EXECUTION, SYSTEMS
from seqmoe.spec.what_if import what_if

LANES = ("measured", "emulated", "simulated")
# Where routing comes from: the running model, or traces that stand in for one.
MODEL, REPLAY = ROUTINGS = ("model", "replay")
# Weights of a declared geometry that are no checkpoint's, and what everything that ran on them is called.
RANDOM = "random"
RANDOM_LABEL = "random weights, replayed routing"
# Fields that came later: a cell that leaves them alone keeps the key that its records have.
_LATER = {"routing": MODEL, "predictor": "", "execution": "", "link": "", "weights": "", "layers": 0,
          "what_if": ""}  # fmt: skip
SCHEMA = 1
# The contract's: a ratio within 5 % is no difference.
LEAST_THRESHOLD = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a comparison. ``residency`` is the share of all experts on the device, 1.0 for full load.

    ``hardware`` is the profile that an emulated or simulated cell imitates, "host" for a measured one. With ``routing``
    "replay" the data set is the name of traces, a prompt one of their requests. ``predictor`` is the kind that a system
    with forecasts runs with, empty for the model's own. ``execution`` is a mode other than the system's own. ``link``
    is the profile to whose overlap ratio a measured cell's link is throttled: the host's own layers set the time.
    ``weights`` "random" runs the model's whole geometry on random numbers where no checkpoint is at hand, with replayed
    routing; ``layers`` are then the first layers that it is cut down to, 0 for all. ``what_if`` is what a simulated
    cell changes of its machine or predictor (see `seqmoe.spec.what_if`), empty for nothing.
    """

    suite: str
    panel: str
    system: str
    model: str
    lane: str
    residency: float
    batch: int
    dataset: str
    prompts: int
    decode_tokens: int
    hardware: str = "host"
    seed: int = 0
    routing: str = MODEL
    predictor: str = ""
    execution: str = ""
    link: str = ""
    weights: str = ""
    layers: int = 0
    what_if: str = ""

    @property
    def key(self) -> str:
        """Twelve hex digits that identify the cell; results are resumed by it."""
        fields = {name: value for name, value in asdict(self).items() if _LATER.get(name) != value}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """A short name for progress and tables."""
        predictor = f" {self.predictor}" if self.predictor else ""
        mode = f" {self.execution}" if self.execution else ""
        random = f", {self.origin}" if self.origin else ""
        place = self.lane if self.hardware == "host" else f"{self.lane} on {self.hardware}"
        return f"{self.system}{mode}{predictor} {self.model} {self.residency:.0%} {place}{random}"

    @property
    def origin(self) -> str:
        """What must be said of a cell without a checkpoint wherever its numbers stand; empty for all others."""
        return random_label(self.layers) if self.weights == RANDOM else ""

    @property
    def detail(self) -> str:
        """The label and what else tells a cell from its neighbours."""
        changed = f", {self.what_if}" if self.what_if else ""
        return f"{self.label}, batch {self.batch}, {self.dataset}{changed}"


@dataclass(frozen=True, slots=True)
class Block:
    """A product of axes inside a profile. A full-load system is run once, not per residency."""

    panel: str
    lane: str
    systems: tuple[str, ...]
    models: tuple[str, ...]
    residency: tuple[float, ...]
    dataset: str
    prompts: int
    decode_tokens: tuple[int, ...]
    batch: tuple[int, ...] = (1,)
    hardware: str = "host"
    routing: str = MODEL
    predictor: str = ""
    execution: tuple[str, ...] = ("",)
    link: str = ""
    weights: str = ""
    layers: int = 0
    what_if: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        for changed in self.what_if:
            _ = what_if(changed)
            if changed and self.lane != "simulated":
                raise ValueError(
                    f"what_if = {changed!r}: lane {self.lane!r} is what it is; only 'simulated' can differ"
                )
        for mode in self.execution:
            if mode and mode not in EXECUTION:
                raise ValueError(f"execution = {mode!r}; {nearest(mode, EXECUTION)}")
        if self.link and self.lane != "measured":
            raise ValueError(f"link = {self.link!r}: lane {self.lane!r} has its own link; only 'measured' is throttled")
        if self.routing not in ROUTINGS:
            raise ValueError(f"routing = {self.routing!r}; {nearest(self.routing, ROUTINGS)}")
        if self.weights not in ("", RANDOM):
            raise ValueError(f"weights = {self.weights!r}; {nearest(self.weights, (RANDOM,))}")
        if self.weights and (self.routing, self.lane) != (REPLAY, "measured"):
            raise ValueError(
                f"weights = {RANDOM!r}: needs routing {REPLAY!r} and lane 'measured', not {self.routing!r} and "
                f"{self.lane!r}"
            )
        if self.routing == REPLAY and self.lane != "emulated" and not self.weights:
            raise ValueError(
                f"routing = {REPLAY!r}: lane {self.lane!r} needs a model; only 'emulated' does without, or give "
                f"weights = {RANDOM!r}"
            )
        if self.layers < 0 or (self.layers and not self.weights):
            raise ValueError(f"layers = {self.layers}: cuts a model of weights = {RANDOM!r} down to so many")
        if self.lane not in LANES:
            raise ValueError(f"lane = {self.lane!r}; {nearest(self.lane, LANES)}")
        if (self.lane == "measured") != (self.hardware == "host"):
            raise ValueError(
                f"hardware = {self.hardware!r}: lane {self.lane!r} needs "
                + ('"host"' if self.lane == "measured" else "a profile of suites/hardware")
            )
        for value in self.residency:
            if not 0 < value <= 1:
                raise ValueError(f"residency = {value}: must lie in (0, 1], for example 0.45")
        counts = {"prompts": (self.prompts,), "decode_tokens": self.decode_tokens, "batch": self.batch}
        for name, values in counts.items():
            for count in values:
                if count < 1:
                    raise ValueError(f"{name} = {count}: must be at least 1")
        for name in ("systems", "models", "residency", "decode_tokens", "batch", "what_if"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: the block would have no cells")


@dataclass(frozen=True, slots=True)
class Profile:
    """One size of a suite: how often each cell is repeated, and its blocks."""

    repeats: int
    block: tuple[Block, ...]

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"repeats = {self.repeats}: must be at least 1")
        if not self.block:
            raise ValueError("block is empty: the profile would have no cells")


@dataclass(frozen=True, slots=True)
class Regression:
    """When `seqmoe compare` fails: a cell that is slower, by more than the share ``threshold``."""

    threshold: float = LEAST_THRESHOLD

    def __post_init__(self) -> None:
        if not LEAST_THRESHOLD <= self.threshold <= 1:
            raise ValueError(
                f"threshold = {self.threshold}: must lie in [{LEAST_THRESHOLD}, 1]; "
                "a smaller difference is never called slower"
            )


@dataclass(frozen=True, slots=True)
class Suite:
    """A declared comparison. ``figure`` names the paper's figure or table that it reproduces."""

    schema: int
    name: str
    title: str
    figure: str
    profile: dict[str, Profile]
    regression: Regression = Regression()

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the suite")

    def cells(self, profile: str, seed: int = 0) -> list[Cell]:
        """All cells of a profile, in declaration order, without duplicates."""
        if profile not in self.profile:
            raise InputError(f"suite {self.name!r} has no profile {profile!r}; {nearest(profile, self.profile)}")
        cells: dict[str, Cell] = {}
        for block in self.profile[profile].block:
            axes = (block.what_if, block.models, block.systems, block.residency, block.batch, block.decode_tokens)
            for changed, model, name, residency, batch, decode_tokens, execution in itertools.product(
                *axes, block.execution
            ):
                cell = Cell(
                    suite=self.name,
                    panel=block.panel,
                    system=name,
                    model=model,
                    lane=block.lane,
                    residency=_residency_of(name, residency),
                    batch=batch,
                    dataset=block.dataset,
                    prompts=block.prompts,
                    decode_tokens=decode_tokens,
                    hardware=block.hardware,
                    seed=seed,
                    routing=block.routing,
                    predictor=block.predictor if _has_predictor(name) else "",
                    execution=execution,
                    link=block.link,
                    weights=block.weights,
                    layers=block.layers,
                    what_if=changed,
                )
                cells.setdefault(cell.key, cell)
        return list(cells.values())


def random_label(layers: int = 0) -> str:
    """What is said of a model on random weights, perhaps cut down to its first ``layers`` layers."""
    return RANDOM_LABEL + (f", the first {layers} layers" if layers else "")


def _residency_of(system: str, residency: float) -> float:
    """Full load holds everything whatever the axis says, so it is one cell, not four."""
    return 1.0 if system == "full" else residency


def _has_predictor(system: str) -> bool:
    return system in SYSTEMS and SYSTEMS[system].predictor != "none"


def load_suite(path: Path) -> Suite:
    """Read and validate a suite file."""
    return load_with_includes(Suite, path)
