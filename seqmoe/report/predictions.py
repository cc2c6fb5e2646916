"""Records of prediction studies, set side by side: one group for each set of traces, the newest of every predictor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.studies.record import PredictionRecord, latest_of_cells
from seqmoe.predictor.calibration import ReliabilityPoint
from seqmoe.predictor.evaluation import (
    Evaluation,
    Missing,
    ece,
    interval,
    misses_interval,
    recall,
    recall_on_misses,
    reliability,
)
from seqmoe.predictor.scores import OFFSETS, Which
from seqmoe.report import style
from seqmoe.spec.study import REFERENCE

RESIDENCIES = (0.15, 0.25, 0.35, 0.45)
# What is prefetched: three experts more than a token needs (paper, section 6).
K3 = 3


@dataclass(frozen=True, slots=True)
class Value:
    """A number with its 95 % interval; NaN where there is none, and ``missing`` then says why."""

    value: float
    low: float = math.nan
    high: float = math.nan
    missing: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a number."""
        return math.isfinite(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A record that gave a result, and its evaluation."""

    record: PredictionRecord
    evaluation: Evaluation

    @property
    def kind(self) -> str:
        """The predictor's kind."""
        return self.record.cell.predictor

    @property
    def title(self) -> str:
        """The predictor's name for people."""
        return style.PREDICTORS[self.kind][0]

    @property
    def cost(self) -> dict[str, Any]:
        """Microseconds per token, parameters, bytes."""
        found: dict[str, Any] = self.record.observations["cost"]
        return found

    @property
    def training(self) -> dict[str, Any]:
        """The record of the training."""
        found: dict[str, Any] = self.record.observations["training"]
        return found

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The learning curve, empty for a predictor that only counts."""
        found: list[dict[str, Any]] = self.training.get("curve", [])
        return found

    def recall(self, offset: int = K3, which: Which = "seq1") -> Value:
        """Recall among the predicted top k + ``offset``, with its interval over sequences."""
        value = recall(self.evaluation, offset, which)
        if isinstance(value, Missing):
            return Value(math.nan, missing=value.reason)
        ends = interval(self.evaluation, offset, which)
        return Value(value) if isinstance(ends, Missing) else Value(value, *ends)

    def on_misses(self, residency: float, offset: int = K3) -> Value:
        """Recall among the experts that an LRU of that residency did not hold, with its interval if it was counted."""
        value = recall_on_misses(self.evaluation, residency, offset)
        if isinstance(value, Missing):
            return Value(math.nan, missing=value.reason)
        ends = misses_interval(self.evaluation, residency, offset)
        return Value(value) if isinstance(ends, Missing) else Value(value, *ends)

    def reliability(self) -> list[ReliabilityPoint]:
        """The reliability curve."""
        return reliability(self.evaluation.calibration)

    def ece(self) -> float:
        """Expected calibration error."""
        return ece(self.evaluation.calibration)


@dataclass(frozen=True, slots=True)
class Absent:
    """A predictor that gave no result, and why."""

    title: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Everything on one set of traces on one host: the predictors in drawing order, and an ablation's rows."""

    host: str
    traces: dict[str, Any]
    predictors: tuple[Judged, ...]
    ablation: tuple[Judged, ...]
    absent: tuple[Absent, ...]

    @property
    def source(self) -> str:
        """Whose routing it is, in words: a recall belongs to it, and to no other model."""
        model = self.traces["model"]
        if self.traces.get("name") == REFERENCE:
            return "the reference model's own routing"
        return f"real routing of {model}"

    @property
    def size(self) -> str:
        """How much of it there is, and how it was split."""
        about = self.traces
        split = f", {about['train']} to fit and {about['test']} to test" if "train" in about else ""
        return f"{about.get('requests', 0):,} sequences, {about.get('tokens', 0):,} tokens{split}"

    @property
    def shape(self) -> str:
        """Layers, experts and k."""
        about = self.traces
        return f"{about.get('layers')} layers of {about.get('experts')} experts, top-{about.get('top_k')}"

    def find(self, kind: str) -> Judged | None:
        """The predictor of that kind, if it gave a result."""
        return next((judged for judged in self.predictors if judged.kind == kind), None)


def groups_of(records: Iterable[PredictionRecord]) -> list[Group]:
    """One group for each host and set of traces, real traces first; of a name whose traces changed only the newest."""
    newest: dict[tuple[str, str], PredictionRecord] = {}
    kept = [record for record in latest_of_cells(records) if isinstance(record, PredictionRecord)]
    for record in sorted(kept, key=lambda record: record.started):
        newest[_host(record), record.cell.traces] = record
    groups = []
    for (host, name), last in newest.items():
        same = [r for r in kept if (_host(r), r.cell.traces, r.digest) == (host, name, last.digest)]
        groups.append(_group(host, same))
    return sorted(groups, key=lambda group: group.traces.get("name") == REFERENCE)


def _group(host: str, records: Sequence[PredictionRecord]) -> Group:
    judged = [
        Judged(record, Evaluation.from_dict(record.observations["evaluation"]))
        for record in records
        if record.status.ok
    ]
    order = list(style.PREDICTORS)
    plain = _alike([one for one in judged if not one.record.cell.variant])
    variants = _alike([one for one in judged if one.record.cell.variant])
    about = max((record.observations["traces"] for record in records), key=len)
    absent = [
        Absent(style.PREDICTORS[r.cell.predictor][0], r.status.kind.replace("_", " "), r.status.reason)
        for r in records
        if not r.status.ok and not r.cell.variant
    ]
    return Group(
        host, about, tuple(sorted(plain, key=lambda one: order.index(one.kind))), tuple(variants), tuple(absent)
    )


def _alike(judged: Sequence[Judged]) -> list[Judged]:
    """One of every predictor and variant, all trained ones for equally long: as long as most were, else the longest."""
    budgets = Counter(one.record.cell.minutes for one in judged if one.record.cell.trained)
    chosen = max(budgets, key=lambda minutes: (budgets[minutes], minutes), default=0.0)
    found: dict[tuple[str, str], Judged] = {}
    for one in sorted(judged, key=lambda one: (one.record.cell.minutes == chosen, one.record.started)):
        found[one.kind, one.record.cell.variant] = one
    declared = {(one.kind, one.record.cell.variant): index for index, one in reversed(list(enumerate(judged)))}
    return sorted(found.values(), key=lambda one: declared[one.kind, one.record.cell.variant])


def _host(record: PredictionRecord) -> str:
    return str(record.environment.get("host", "unknown host"))


def offsets() -> list[str]:
    """The places of the axis: k, k+1, ... k+4."""
    return ["k" if offset == 0 else f"k+{offset}" for offset in range(OFFSETS)]
