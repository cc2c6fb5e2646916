"""Figure 2: the Transformer probe learns from the order of tokens, or does it? Ordered against shuffled sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from seqmoe.report import style
from seqmoe.report.plot import Line, Plot, Tick
from seqmoe.report.predictions import Group, Judged

# The paper's claims, by their id.
ORDERED, SHUFFLED = "probe-recall-ordered", "probe-recall-shuffled"
_TICKS = {
    ORDERED: "Qwen3-30B\nordered",
    SHUFFLED: "Qwen3-30B\nshuffled",
    "probe-recall-gpt": "GPT-OSS-120B\nordered",
}


@dataclass(frozen=True, slots=True)
class Figure2:
    """Panels over groups of records (`seqmoe.report.predictions.groups_of`) and the paper's claims."""

    groups: Sequence[Group]
    claims: pd.DataFrame

    def panels(self, group: Group) -> list[Plot]:
        """Recall and loss over epochs, and what the paper prints of its own models."""
        note = f"{group.source[0].upper()}{group.source[1:]}"
        return [
            Plot("Recall of the first k+3", note, "Recall, validation", "Epochs", self._lines(group, "recall"),
                 ends=(0.0, 1.0)),
            Plot("Loss", note, "Loss, validation", "Epochs", self._lines(group, "validation_loss"), percent=False),
            self.printed(),
        ]  # fmt: skip

    def printed(self) -> Plot:
        """The paper's recall of its probe."""
        ticks = []
        for name, title in _TICKS.items():
            if (value := self.claim(name)) is not None:
                ticks.append(Tick(title, value, f"{'> ' if name == 'probe-recall-gpt' else ''}{value:.0%}"))
        note = "First k+3, when the probe has converged"
        return Plot("Printed in the paper", note, "Recall", "The paper's models", ticks=tuple(ticks), ends=(0.0, 1.0))

    def claim(self, name: str) -> float | None:
        """A share that the paper prints, None if the transcription lacks it."""
        values = self.claims.loc[self.claims["id"] == name, "value"]
        return float(values.iloc[0]) / 100 if len(values) else None

    def table(self) -> pd.DataFrame:
        """Every point of the curves, and the paper's numbers in rows of traces ``paper``."""
        rows: list[dict[str, object]] = []
        for group in self.groups:
            for one in probes(group):
                shared = {"host": group.host, "traces": one.record.cell.traces, "digest": one.record.digest,
                          "model": group.traces["model"], "order": order_of(one)}  # fmt: skip
                names = ("minutes", "tokens", "loss", "validation_loss", "recall")
                rows += [
                    shared | {"epochs": epochs(one, point)} | {name: point.get(name) for name in names}
                    for point in one.curve
                ]
        for _, claim in self.claims[self.claims["id"].isin(list(_TICKS))].iterrows():
            order = "shuffled" if "shuffled" in claim["id"] else "ordered"
            value = float(claim["value"]) / 100
            rows.append({"traces": "paper", "model": claim["model"], "order": order, "recall": value})
        return pd.DataFrame(rows)

    def _lines(self, group: Group, name: str) -> tuple[Line, ...]:
        lines = []
        for one in probes(group):
            points = [(epochs(one, p), p[name]) for p in one.curve if p.get(name) is not None]
            if points:
                x, y = zip(*points, strict=True)
                ordered = one.record.cell.options.ordered
                colour, look = (style.ORDERED, "solid") if ordered else (style.SHUFFLED, "dashed")
                marker = ("o" if ordered else "s") if len(x) <= 30 else ""
                lines.append(Line(order_of(one), colour, tuple(map(float, x)), tuple(y), marker=marker, look=look,
                                  strong=ordered))  # fmt: skip
        return tuple(lines)


def probes(group: Group) -> list[Judged]:
    """The trained predictors of a group, ordered sequences first."""
    everything = [one for one in (*group.predictors, *group.ablation) if one.record.cell.trained]
    return sorted(everything, key=lambda one: not one.record.cell.options.ordered)


def epochs(one: Judged, point: dict[str, Any]) -> float:
    """Passes over the training sequences at a point of the curve, parts of one included where the record tells."""
    whole = one.training.get("epoch_tokens")
    return float(point["tokens"] / whole if whole else point["epoch"])


def order_of(one: Judged) -> str:
    """Whether the sequences were as decoded, in a word."""
    return "ordered" if one.record.cell.options.ordered else "shuffled"
