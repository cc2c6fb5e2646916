"""Table 1: the models' parameters by Transformers' own classes, as declared here, and as printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from seqmoe.adapters.parameters import ParameterCounts, count_parameters
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import ModelRow, table1_rows


@dataclass(frozen=True, slots=True)
class Row:
    """One model: ``counts`` by its Transformers class, and what the paper ``printed``."""

    model: Model
    counts: ParameterCounts
    printed: ModelRow

    @property
    def cells(self) -> dict[str, tuple[str, str]]:
        """What the table prints, generated and printed, by column."""
        counts, row = self.counts, self.printed
        return {
            "parameters (MoE / total)": (
                f"{_billions(counts.routed)} / {_billions(counts.total)}",
                f"{row.moe_parameters}B / {row.total_parameters}B",
            ),
            "experts per layer (active / total)": (
                f"{counts.top_k} / {counts.experts}",
                f"{row.active_experts} / {row.experts}",
            ),
        }

    @property
    def differences(self) -> list[str]:
        """Where the generated table is not the printed one, or the declaration is neither."""
        found = [f"{name}: {mine}, printed {theirs}" for name, (mine, theirs) in self.cells.items() if mine != theirs]
        for name in ("layers", "experts", "top_k"):
            declared, counted = getattr(self.model, name), getattr(self.counts, name)
            if declared != counted:
                found.append(f"suites/models/{self.model.name}.toml: {name} = {declared}, the class has {counted}")
        return found


def rows_of(home: Home, count: Callable[[str, dict[str, Any]], ParameterCounts] = count_parameters) -> list[Row]:
    """The rows of table 1 in the paper's order; ``count`` stands in for Transformers in a test."""
    models = {model.title: model for model in (load_model(home, path.stem) for path in _declared(home))}
    rows = []
    for printed in table1_rows(home):
        model = models[printed.model]
        rows.append(Row(model, count(model.family, model.configuration), printed))
    return rows


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """One line for each model: exact counts, and the printed numbers."""
    return pd.DataFrame(
        [
            {"model": row.model.title, "family": row.model.family, "format": row.model.format, **asdict(row.counts),
             **{f"printed_{name}": value for name, value in asdict(row.printed).items() if name != "model"},
             "agrees": not row.differences}
            for row in rows
        ]
    )  # fmt: skip


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.0f}B"


def _declared(home: Home) -> Any:
    return sorted((home.suites / "models").glob("*.toml"))
