"""Claims on expert hit rates: of systems that ran, and of policies that were replayed on routing traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seqmoe.harness import metrics
from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence, Sample
from seqmoe.harness.claims.metrics.base import Metric, Place, Samples, evidence_of
from seqmoe.harness.claims.metrics.runs import repeats, samples
from seqmoe.harness.studies.record import ReplayRecord
from seqmoe.simulate.rows import ReplayRow
from seqmoe.spec.claim import Claim

# The link of replays with prefetching: the paper's RTX 4090 at full-load speed.
LINK = "rtx4090"
_POLICY = {"SeqMoE": "seqmoe", "LRU": "lru"}


def _hit_rate(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Percent of needed experts that were resident, of ``system`` at ``residency``; the paper's models drawn there."""
    own = [claim.model] if claim.model != "all" else context.printed_models(options["residency"])
    return _evidence(context, own, options["system"], lambda model: options["residency"], _percent)


def _miss_rate(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Percent of needed experts that were not resident, at the top residency of each model."""
    return _evidence(context, context.printed_models(), options["system"], context.top_residency, _percent_missing)


def rows_of(context: Context) -> Iterator[tuple[ReplayRecord, ReplayRow, str]]:
    """Every replayed row under the event contract with batch 1, the newest record last, and the name of its link."""
    kept = [one for one in context.studies if isinstance(one, ReplayRecord) and one.status.ok]
    for record in sorted(kept, key=lambda record: record.started):
        if (record.cell.contract, record.cell.batch) != ("event", 1):
            continue
        names = {value: name for name, value in record.observations["links"].items()}
        for values in record.observations["rows"]:
            row = ReplayRow.from_dict(values)
            yield record, row, "" if row.link == 0 else names[row.link]


def replayed_models(context: Context) -> list[str]:
    """Models whose traces were replayed, by their declared titles."""
    return list(dict.fromkeys(model_of(context, record) for record, _, _ in rows_of(context)))


def model_of(context: Context, record: ReplayRecord) -> str:
    """The declared title of the model that a record's traces are of."""
    return context.title_of(str(record.observations["traces"]["model"]))


def replay_place(context: Context, record: ReplayRecord, link: str = "") -> Place:
    """Replay of observed routing counts hits in virtual time: simulated, with nothing synthetic about the routing."""
    prefetch = f", prefetches at the pace of {link}" if link else ""
    host = str(record.environment.get("host", "unknown host"))
    return Place("simulated", host, f"replay of observed routing{prefetch}")


def _evidence(context: Context, own: list[str], system: str, residency_of: Any, scale: Any) -> list[Evidence]:
    def samples_of(model: str) -> Samples:
        found: dict[Place, Sample] = {}
        policy, residency = _POLICY[system], residency_of(model)
        for record, row, link in rows_of(context):
            wanted = LINK if policy == "seqmoe" else ""
            if (model_of(context, record), row.policy, row.residency, link) == (model, policy, residency, wanted):
                found[replay_place(context, record, link)] = scale(row)
        if model in context.models:
            ran = repeats(context, model, policy, residency, metrics.hit_rate, paper_machine=False)
            for place, sample in samples(ran).items():
                found[place] = scale(sample)
        return found

    others = [model for model in replayed_models(context) if model not in own]
    return evidence_of(own, others, samples_of)


def _percent(found: ReplayRow | Sample) -> Sample:
    if isinstance(found, Sample):
        return Sample(100 * found.value, 100 * found.low, 100 * found.high)
    low, high = found.interval or (float("nan"), float("nan"))
    return Sample(100 * found.hit_rate, 100 * low, 100 * high)


def _percent_missing(found: ReplayRow | Sample) -> Sample:
    hits = _percent(found)
    return Sample(100 - hits.value, 100 - hits.high, 100 - hits.low)


HIT_RATE = Metric(_hit_rate)
MISS_RATE = Metric(_miss_rate)
