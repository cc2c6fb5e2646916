"""Claims on predictors: recall, its loss over eight steps, the probe on shuffled tokens, sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence, Sample
from seqmoe.harness.claims.metrics.base import Metric, Place, evidence_of
from seqmoe.harness.studies.record import PredictionRecord
from seqmoe.predictor.scores import Evaluation, Missing, interval, recall
from seqmoe.spec.claim import Claim

# The paper prefetches three experts more than a token needs.
_K3 = 3
Measure = Callable[[PredictionRecord], Sample | None]


def _recall(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Seq-1 recall in percent; ``predictor`` is its kind, ``variant`` one of its suite's."""
    return _evidence(context, [claim.model], options, lambda record: _percent(record, "seq1"))


def _drop(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Seq-1 less Seq-8 recall, in points. The interval of a difference is not resampled: none is told."""

    def measure(record: PredictionRecord) -> Sample | None:
        ends = [_percent(record, which) for which in ("seq1", "seq8")]
        return Sample(ends[0].value - ends[1].value) if ends[0] and ends[1] else None

    return _evidence(context, context.printed_models(), options, measure)


def _long(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Whether recall beyond 4,096 tokens is within ``slack`` points of that of all sequences."""
    found = []
    for record in _chosen(context, options):
        near, far = _percent(record, "seq1"), _percent(record, "long")
        if near is None or far is None:
            continue
        model, place = _model(context, record), _place(record)
        drop = near.value - far.value
        found.append(
            Evidence(place.lane, model, f"{place.basis}, {place.host}", model in context.printed_models(),
                     agrees=drop <= options["slack"], text=f"{far.value:.1f}% against {near.value:.1f}%")
        )  # fmt: skip
    return found


def _mebibytes(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Size of the trained predictor in MB (1e6 bytes)."""

    def measure(record: PredictionRecord) -> Sample | None:
        size = record.observations["cost"].get("bytes")
        return None if size is None else Sample(size / 1e6)

    return _evidence(context, [claim.model], options, measure)


def _evidence(context: Context, own: list[str], options: Mapping[str, Any], measure: Measure) -> list[Evidence]:
    found: dict[str, dict[Place, Sample]] = {}
    for record in _chosen(context, options):
        sample = measure(record)
        if sample is not None:
            found.setdefault(_model(context, record), {})[_place(record)] = sample
    return evidence_of(own, [model for model in found if model not in own], lambda model: found.get(model, {}))


def _chosen(context: Context, options: Mapping[str, Any]) -> list[PredictionRecord]:
    """Records of the asked kind and variant, the one that was trained longest last."""
    kept = [one for one in context.studies if isinstance(one, PredictionRecord) and one.status.ok]
    wanted = (options["predictor"], options.get("variant", ""))
    chosen = [one for one in kept if (one.cell.predictor, one.cell.variant) == wanted]
    return sorted(chosen, key=lambda one: (one.cell.minutes, one.started))


def _percent(record: PredictionRecord, which: str) -> Sample | None:
    evaluation = Evaluation.from_dict(record.observations["evaluation"])
    value = recall(evaluation, _K3, which)  # type: ignore[arg-type]
    if isinstance(value, Missing):
        return None
    ends = interval(evaluation, _K3, which)  # type: ignore[arg-type]
    return Sample(100 * value) if isinstance(ends, Missing) else Sample(100 * value, 100 * ends[0], 100 * ends[1])


def _model(context: Context, record: PredictionRecord) -> str:
    return context.title_of(str(record.observations["traces"]["model"]))


def _place(record: PredictionRecord) -> Place:
    """A predictor that was trained and run for real on observed routing is measured."""
    train = record.observations["traces"].get("train", 0)
    host = str(record.environment.get("host", "unknown host"))
    return Place("measured", host, f"{record.cell.predictor} trained on {train:,} requests of observed routing")


RECALL = Metric(_recall)
RECALL_DROP = Metric(_drop)
LONG_RECALL = Metric(_long)
PREDICTOR_SIZE = Metric(_mebibytes)
