"""A suite's measured cells of our own systems, on a declared model's sizes with random weights and replayed routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqmoe.harness.replays import Replays
from seqmoe.predictor.container import read_container
from seqmoe.runtime.random_model.opened import Opened, RandomModel
from seqmoe.simulate.synthetic import SYNTHETIC, synthetic_name
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import RANDOM, REPLAY, Cell
from seqmoe.spec.system import SYSTEMS, system

# What forecasts where nobody gave a predictor: it learns as it goes, so it fits any model.
_PREDICTOR = "online_first_order"


@dataclass(frozen=True, slots=True)
class RandomConfig:
    """``config`` is a declared model, cut down to ``layers`` layers (0: all); ``source`` traces, or "synthetic"."""

    config: str
    source: str
    layers: int = 0

    @property
    def location(self) -> str | None:
        """Where the traces are; None for those that are drawn."""
        return None if self.source == SYNTHETIC else self.source

    @property
    def dataset(self) -> str:
        """The traces' name, as `Replays.path` finds it."""
        return synthetic_name(self.config) if self.source == SYNTHETIC else Path(self.source).name.split(".")[0]

    def cells(self, home: Home, cells: Sequence[Cell], replays: Replays, predictor: Path | None) -> list[Cell]:
        """The cells with this model in their model's place, without duplicates.

        Raises `InputError` where none can be, since wrapped systems and other lanes have no part in it, and
        `OutOfMemoryError` with the sum for what does not fit into this machine.
        """
        load_model(home, self.config)
        single = len(replays.traces(self.dataset).requests) == 1
        kind = _PREDICTOR if predictor is None else str(read_container(predictor)[0]["kind"])
        found: dict[str, Cell] = {}
        for cell in cells:
            if cell.lane != "measured" or cell.system not in SYSTEMS:
                continue
            changed = replace(
                cell,
                model=self.config,
                weights=RANDOM,
                routing=REPLAY,
                dataset=self.dataset,
                layers=self.layers,
                prompts=1 if single else cell.prompts,
                predictor=kind if SYSTEMS[cell.system].predictor != "none" else "",
                execution="" if cell.execution == "graph" else cell.execution,
            )
            found.setdefault(changed.key, changed)
        if not found:
            raise InputError(
                f"--config {self.config}: the suite has no measured cells of our own systems, which alone run random "
                "weights; `seqmoe bench sizes` has some"
            )
        for cell in found.values():
            check_memory(home, cell, replays)
        return list(found.values())


def random_model(home: Home, cell: Cell, replays: Replays) -> RandomModel:
    """What a cell of random weights runs."""
    requests, warm_up = replays.requests(cell)
    return RandomModel(
        model=load_model(home, cell.model),
        traces=str(replays.path(cell.dataset)),
        requests=requests,
        warm_up=warm_up,
        layers=cell.layers,
        predictor=replays.predictor(cell),
    )


def check_memory(home: Home, cell: Cell, replays: Replays) -> None:
    """Raise `OutOfMemoryError` with the sum for a cell that does not fit; nothing is allocated."""
    opened = Opened.of(random_model(home, cell, replays))
    opened.check_memory(system(cell.system), cell.residency, cell.batch, cell.decode_tokens)
