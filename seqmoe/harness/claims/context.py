"""What metrics of claims look at: records, what is declared, and what the paper prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from seqmoe.harness.record import Record
from seqmoe.harness.store import latest
from seqmoe.harness.studies.record import StudyRecord, latest_of_cells
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import Bar, figure6_bars
from seqmoe.spec.study import REFERENCE

# The share of the experts that the paper's headline figures are at, and its panel of them.
TOP_RESIDENCY, SHORT = 0.45, "decode-short"
_FORMATS = ("-fp8", "-bf16", "-mxfp4")


@dataclass(frozen=True)
class Context:
    """Records of systems (``runs``) and of studies, the newest of each cell, and the declarations of ``home``."""

    home: Home
    runs: tuple[Record, ...]
    studies: tuple[StudyRecord, ...]

    @staticmethod
    def of(home: Home, records: Iterable[Record | StudyRecord]) -> Context:
        """Keep the newest of what was recorded more than once."""
        everything = list(records)
        runs = latest(record for record in everything if isinstance(record, Record))
        studies = latest_of_cells(record for record in everything if isinstance(record, StudyRecord))
        return Context(home, tuple(runs), tuple(studies))

    @cached_property
    def bars(self) -> tuple[Bar, ...]:
        """Figure 6 as printed."""
        return figure6_bars(self.home)

    @cached_property
    def models(self) -> dict[str, Model]:
        """Every declared model by its title, which is its name in the paper."""
        folder = self.home.suites / "models"
        return {model.title: model for model in (load_model(self.home, path.stem) for path in folder.glob("*.toml"))}

    def bar(self, model: str, system: str, residency: float) -> Bar | None:
        """A bar of short decoding, by the paper's names; None where it is a cross, or not drawn."""
        for bar in self.bars:
            if (bar.panel, bar.model, bar.system, bar.x) == (SHORT, model, system, residency):
                return None if bar.value is None else bar
        return None

    def hardware(self, model: str) -> str:
        """The paper's machine for a model, as it is printed; empty for a model that it does not have."""
        return next((bar.hardware for bar in self.bars if bar.panel == SHORT and bar.model == model), "")

    def printed_models(self, residency: float | None = None, system: str = "SeqMoE") -> list[str]:
        """The paper's models whose bar of ``system`` at that residency is drawn; at any one for None."""
        bars = [bar for bar in self.bars if (bar.panel, bar.system) == (SHORT, system) and bar.value is not None]
        return list(dict.fromkeys(bar.model for bar in bars if residency is None or bar.x == residency))

    def top_residency(self, model: str) -> float:
        """The largest residency of a model in the paper: 45 %, 40 % for Qwen3.6; 45 % for a model it does not have."""
        return max((b.x for b in self.bars if (b.panel, b.model) == (SHORT, model)), default=TOP_RESIDENCY)

    def is_reference(self, model: str) -> bool:
        """Whether that title is of the small model that ships with the package: the weakest evidence on others."""
        return model in self.models and self.models[model].name == REFERENCE

    def title_of(self, routing: str) -> str:
        """The declared title of the model that traces say they are of; their own word where none is declared."""
        said = _plain(routing)
        for model in self.models.values():
            if said in {_plain(model.name), _plain(model.title), _plain(model.hub_id or model.name)}:
                # A model of the paper in another number format routes alike; its title is the paper's.
                return model.title
        return routing


def _plain(name: str) -> str:
    """A model's name without organisation, case and number format."""
    tail = name.rsplit("/", 1)[-1].lower()
    for ending in _FORMATS:
        tail = tail.removesuffix(ending)
    return tail
