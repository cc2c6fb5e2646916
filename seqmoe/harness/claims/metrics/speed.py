"""Claims on throughput: tok/s, shares of full load, and one system beside another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqmoe.harness import metrics
from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence
from seqmoe.harness.claims.metrics.base import Metric, Place, Samples, evidence_of
from seqmoe.harness.claims.metrics.runs import others, ratios, repeats, samples
from seqmoe.spec.claim import Claim
from seqmoe.spec.printed import Bar

_FULL, _ALL = "FullLoad", "all"
# What the paper sets SeqMoE against besides FreeToken.
_REMAINING = ("llama.cpp", "KTransformers", "MoE-Infinity")


def _tok_s(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """``system`` at the model's top residency; other models' speeds say nothing of this one's."""
    model = claim.model
    found = repeats(context, model, options["system"], context.top_residency(model), metrics.decode_tok_s)
    return evidence_of([model], [], lambda _: samples(found))


def _tok_s_bars(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Bar]:
    return _drawn([context.bar(claim.model, options["system"], context.top_residency(claim.model))])


def _share(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Percent of full load; ``residency`` chooses the models of a mean, those that are drawn there."""
    beside = others(context) if options["system"] == "SeqMoE" else []
    return evidence_of(
        _models(context, claim, options), beside, lambda model: share_of_full(context, model, options["system"])
    )


def _share_bars(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Bar]:
    models = _models(context, claim, options)
    pairs = [(model, system) for model in models for system in (options["system"], _FULL)]
    return _drawn([context.bar(model, system, context.top_residency(model)) for model, system in pairs])


def _best_remaining(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """The largest share of full load that a system besides FreeToken and SeqMoE reaches on any of the models."""
    drawn = _remaining_bars(context)
    found = [share_of_full(context, bar.model, bar.system) for bar in drawn]
    places = [place for place in found[0] if all(place in one for one in found)]
    best = {place: max((one[place] for one in found), key=lambda sample: sample.value) for place in places}
    return evidence_of([f"{len(context.printed_models())} models of the paper"], [], lambda _: best)


def _remaining_bars(context: Context) -> list[Bar]:
    models = context.printed_models()
    return _drawn(
        [context.bar(model, system, context.top_residency(model)) for model in models for system in _REMAINING]
    )


def _matches(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Whether SeqMoE at ``residency`` is at least as fast as FreeToken at the top one, within ``slack`` of it."""
    models = context.printed_models(system="FreeToken")
    measured = metrics.decode_tok_s
    pairs = {
        model: ratios(
            repeats(context, model, "SeqMoE", options["residency"], measured),
            repeats(context, model, "FreeToken", context.top_residency(model), measured),
        )
        for model in models
    }
    places: list[Place] = [place for place in pairs[models[0]] if all(place in one for one in pairs.values())]
    found = []
    for place in places:
        shares = {model: pairs[model][place].value for model in models}
        agrees = min(shares.values()) >= 100 * (1 - options["slack"])
        text = ", ".join(f"{share:.0f}% of it on {model}" for model, share in shares.items())
        found.append(Evidence(place.lane, f"{len(models)} models of the paper", place.basis, True, agrees=agrees,
                              contradicts=not agrees, text=text, synthetic=place.synthetic))  # fmt: skip
    return found


def share_of_full(context: Context, model: str, system: str) -> Samples:
    """Percent of full load's decode throughput at the model's top residency, at every place where both ran."""
    residency = context.top_residency(model)
    systems = (repeats(context, model, name, residency, metrics.decode_tok_s) for name in (system, _FULL))
    return ratios(*systems)


def _models(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[str]:
    if claim.model != _ALL:
        return [claim.model]
    return context.printed_models(options["residency"], options["system"])


def _drawn(bars: Sequence[Bar | None]) -> list[Bar]:
    return [bar for bar in bars if bar is not None]


TOK_S = Metric(_tok_s, _tok_s_bars)
SHARE = Metric(_share, _share_bars)
BEST_REMAINING = Metric(_best_remaining, lambda context, claim, options: _remaining_bars(context))
MATCHES = Metric(_matches)
