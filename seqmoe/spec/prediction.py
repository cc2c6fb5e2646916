"""Prediction studies: predictors that are fitted to, and judged on, routing traces; a profile expands to cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from seqmoe.spec.errors import nearest
from seqmoe.spec.include import load_with_includes
from seqmoe.spec.study import REFERENCE, SCHEMA, cell_key, named_sources, profile_of, trace_name

STUDY = "prediction"
TRAINED = ("mamba2", "transformer")
RUNNING = (*TRAINED, "first_order", "previous", "popularity")
# The early router reads router logits that only a collection keeps.
PREDICTORS = (*RUNNING, "early_router")
LOSSES = ("both", "ranking", "kl")
# Widths of a network: they divide into heads of 64, and a forecast by a wider one takes longer than what it saves.
WIDTHS = (32, *range(64, 8193, 64))
_MOST_MINUTES = 1e6


@dataclass(frozen=True, slots=True)
class Options:
    """What of a trained predictor can be chosen; see `seqmoe.predictor.training.TrainingOptions`.

    ``ranges`` is the number of predictors that share the layers, ``hidden`` and ``blocks`` their size; None for the
    kind's own. ``direct`` predicts all eight steps at once, without a rollout; ``ordered`` false shuffles the steps of
    every sequence (figure 2).
    """

    ranges: int | None = None
    hidden: int | None = None
    blocks: int | None = None
    psi: bool = True
    loss: str = "both"
    scheduled_sampling: bool = True
    use_head: bool = True
    direct: bool = False
    ordered: bool = True

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss = {self.loss!r}; {nearest(self.loss, LOSSES)}")
        for name in ("ranges", "hidden", "blocks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        if self.hidden is not None and self.hidden not in WIDTHS:
            raise ValueError(f"hidden = {self.hidden}: must be 32, or a multiple of 64 up to {WIDTHS[-1]}")


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of an ablation: its name, and what differs."""

    title: str
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        if not self.title:
            raise ValueError("title is empty; say what differs")


@dataclass(frozen=True, slots=True)
class PredictionCell:
    """One predictor on one set of traces. ``minutes`` is the training budget, 0 for a predictor that only counts.

    ``variant`` is the title of an ablation's row, empty outside of one.
    """

    suite: str
    panel: str
    predictor: str
    traces: str
    minutes: float = 0.0
    variant: str = ""
    options: Options = field(default_factory=Options)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.predictor not in PREDICTORS:
            raise ValueError(f"predictor = {self.predictor!r}; {nearest(self.predictor, PREDICTORS)}")
        if not 0 <= self.minutes < _MOST_MINUTES:
            raise ValueError(f"minutes = {self.minutes}: must lie in 0..{_MOST_MINUTES:g}")

    @property
    def trained(self) -> bool:
        """Whether it is trained by gradient descent, within ``minutes``."""
        return self.predictor in TRAINED

    @property
    def key(self) -> str:
        """Twelve hex digits that identify the cell."""
        return cell_key(self)

    @property
    def label(self) -> str:
        """A short name for progress and tables."""
        budget = f", {self.minutes:g} min" if self.trained else ""
        return f"{self.predictor}{f' ({self.variant})' if self.variant else ''} on {self.traces}{budget}"

    @property
    def detail(self) -> str:
        """The label and what else tells a cell from its neighbours."""
        return f"{self.label}, {self.panel}"


@dataclass(frozen=True, slots=True)
class Block:
    """Predictors, each in every variant, on one set of traces (``traces``: "reference", a path or an address).

    ``minutes`` is what a trained predictor is given, ``minutes_given_traces`` what it is given on traces of a person's
    own (``--traces``); 0 there means the same.
    """

    panel: str
    predictors: tuple[str, ...]
    traces: str = REFERENCE
    minutes: float = 0.0
    minutes_given_traces: float = 0.0
    variant: tuple[Variant, ...] = ()

    def __post_init__(self) -> None:
        if not self.predictors:
            raise ValueError("predictors is empty: the block would have no cells")
        for name in self.predictors:
            if name not in PREDICTORS:
                raise ValueError(f"predictors: {name!r}; {nearest(name, PREDICTORS)}")
        for name in ("minutes", "minutes_given_traces"):
            if not 0 <= getattr(self, name) < _MOST_MINUTES:
                raise ValueError(f"{name} = {getattr(self, name)}: must lie in 0..{_MOST_MINUTES:g}")
        trained = [name for name in self.predictors if name in TRAINED]
        if trained and not self.minutes:
            raise ValueError(f"minutes is missing: {', '.join(trained)} must be told how long to train")
        if self.variant and len(trained) < len(self.predictors):
            raise ValueError(f"variant: only {' and '.join(TRAINED)} have any; give the others a block of their own")
        titles = [variant.title for variant in self.variant]
        if len(set(titles)) < len(titles):
            raise ValueError("variant: two of them have the same title")


@dataclass(frozen=True, slots=True)
class Profile:
    """One size of a study."""

    block: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not self.block:
            raise ValueError("block is empty: the profile would have no cells")


@dataclass(frozen=True, slots=True)
class PredictionSuite:
    """A declared prediction study. ``figure`` names the paper's figure that it reproduces."""

    schema: int
    name: str
    title: str
    figure: str
    study: str
    profile: dict[str, Profile]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the suite")
        if self.study != STUDY:
            raise ValueError(f"study = {self.study!r}: this reads {STUDY!r}")

    def cells(self, profile: str, seed: int = 0, traces: str | None = None) -> list[PredictionCell]:
        """All cells of a profile in declaration order, without duplicates; ``traces`` replaces the blocks' own."""
        cells: dict[str, PredictionCell] = {}
        for block in profile_of(self.name, self.profile, profile).block:
            given = block.minutes_given_traces if traces is not None else 0.0
            for variant in block.variant or (None,):
                for predictor in block.predictors:
                    cell = PredictionCell(
                        suite=self.name,
                        panel=block.panel,
                        predictor=predictor,
                        traces=trace_name(block.traces) if traces is None else traces,
                        minutes=(given or block.minutes) if predictor in TRAINED else 0.0,
                        variant=variant.title if variant else "",
                        options=variant.options if variant else Options(),
                        seed=seed,
                    )
                    cells.setdefault(cell.key, cell)
        return list(cells.values())

    def sources(self, profile: str) -> dict[str, str]:
        """Where the traces are that a profile's blocks declare, by their names."""
        return named_sources(block.traces for block in profile_of(self.name, self.profile, profile).block)


def load_prediction_suite(path: Path) -> PredictionSuite:
    """Read and validate the file of a prediction study."""
    return load_with_includes(PredictionSuite, path)
