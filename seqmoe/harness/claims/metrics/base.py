"""What metrics share: samples by place, means over models, and evidence from both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence, Sample
from seqmoe.spec.claim import Claim
from seqmoe.spec.printed import Bar


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sample is from: numbers of two places are never averaged."""

    lane: str
    host: str
    basis: str
    synthetic: bool = False


Samples = Mapping[Place, Sample]


@dataclass(frozen=True, slots=True)
class Metric:
    """``find`` gives the evidence on a claim; ``bars`` the bars of figure 6 that the printed value is made of."""

    find: Callable[[Context, Claim, Mapping[str, Any]], list[Evidence]]
    bars: Callable[[Context, Claim, Mapping[str, Any]], list[Bar]] = lambda context, claim, options: []


def evidence_of(own: Sequence[str], others: Iterable[str], samples_of: Callable[[str], Samples]) -> list[Evidence]:
    """Evidence on the models that a claim is about, their mean if there are several, and on each other model."""
    found = []
    by_model = [samples_of(model) for model in own]
    # A mean is one only where all of its models were run.
    shared = [place for place in by_model[0] if all(place in samples for samples in by_model)] if by_model else []
    name = own[0] if len(own) == 1 else f"mean of {len(own)} models"
    found += [_one(place, name, _mean([samples[place] for samples in by_model]), True) for place in shared]
    for model in others:
        found += [_one(place, model, sample, False) for place, sample in samples_of(model).items()]
    return found


def _one(place: Place, model: str, sample: Sample, own_terms: bool) -> Evidence:
    basis = place.basis if place.lane == "simulated" and place.synthetic else f"{place.basis}, {place.host}"
    return Evidence(place.lane, model, basis, own_terms, sample, synthetic=place.synthetic)


def _mean(samples: Sequence[Sample]) -> Sample:
    """One sample as it is; a mean has no interval, since the spread of models is no spread of a measurement."""
    return samples[0] if len(samples) == 1 else Sample(sum(one.value for one in samples) / len(samples))
