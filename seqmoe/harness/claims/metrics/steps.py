"""Claims on where the time of a decode step goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence
from seqmoe.harness.claims.metrics.base import Metric, Samples, evidence_of
from seqmoe.harness.claims.metrics.runs import others, repeats, samples
from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import Record
from seqmoe.spec.claim import Claim
from seqmoe.spec.printed import Bar

_SECONDS = "_seconds"


def _share(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Percent of SeqMoE's decode time in ``part``: computation, predictor, management or stall."""
    own = [claim.model] if claim.model != "all" else context.printed_models()

    def samples_of(model: str) -> Samples:
        residency = context.top_residency(model)
        return samples(repeats(context, model, "SeqMoE", residency, lambda r: share_of(r, options["part"])), 100.0)

    return evidence_of(own, others(context), samples_of)


def share_of(record: Record, part: str) -> float | Missing:
    """Share of one part of the timed decode steps: by timers, or as the simulator added it up."""
    stats = record.observations.stats
    if "timed_steps" in stats:
        names = ("computation", "predictor", "management", "stall", "other")
        parts = {name: float(stats.get(f"{name}{_SECONDS}", 0.0)) for name in names}
    elif isinstance(stats.get("breakdown"), dict):
        parts = {name: float(seconds) for name, seconds in stats["breakdown"].items()}
    else:
        return Missing("the cell was run without timers of its parts")
    total = sum(parts.values())
    return parts[part] / total if total > 0 else Missing("no step was timed")


def _bars(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Bar]:
    """Computation takes full load's time, and nearly all of the rest is stall: both follow from two bars."""
    if claim.model == "all" or options["part"] not in ("computation", "stall"):
        return []
    top = context.top_residency(claim.model)
    return [bar for system in ("SeqMoE", "FullLoad") if (bar := context.bar(claim.model, system, top)) is not None]


STEP_SHARE = Metric(_share, _bars)
