"""How a replay runs, and whether its traces, policies and predictor fit together: said before anything is counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from seqmoe.predictor.base import Predictor
from seqmoe.simulate.batch import Batch
from seqmoe.simulate.fitted import check_fitted
from seqmoe.simulate.foresight import check_predictor
from seqmoe.simulate.policies import POLICIES, Policy
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.trace import PREFILL, TraceSet

CONTRACTS = ("event", "sequential")
# Scores are float32, exact for whole numbers up to this.
_EXACT = 2**24
# Bytes for each [step, layer, expert] of policies that work on arrays: what was used, scores and their steps between;
# and of forecasts, nine rows more and what is made of them. Measured with 20,000 steps of 24 x 32.
_ARRAY_BYTES, _FORECAST_BYTES = 40, 150


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a replay runs.

    ``links`` are in experts per layer, ``math.inf`` for any number: policies that prefetch are run with each.
    ``contract`` ``sequential`` makes every access an event of its own: it inflates recency, and exists to compare with
    papers that count so. ``batch`` requests run together, each ``stagger`` steps after the one before. The first
    ``warm_up`` decode steps of a request do not count.
    """

    links: tuple[float, ...] = (0.0,)
    contract: str = "event"
    batch: int = 1
    stagger: int = 0
    warm_up: int = 0

    def __post_init__(self) -> None:
        for link in self.links:
            if not link >= 0:
                raise InputError(f"--link-experts-per-layer {link:g}: must not be negative; 0 is no prefetching")
        object.__setattr__(self, "links", tuple(dict.fromkeys(self.links)))  # two profiles may have the same ratio
        if self.contract not in CONTRACTS:
            raise InputError(f"--contract: {self.contract!r} is unknown; {nearest(self.contract, CONTRACTS)}")
        for name, least in (("batch", 1), ("stagger", 0), ("warm_up", 0)):
            if getattr(self, name) < least:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least {least}")
        if self.contract == "sequential" and self.batch > 1:
            raise InputError(
                "--contract sequential: accesses have an order within one request only; leave --batch at 1"
            )


def slots_of(traces: TraceSet, residencies: Sequence[float]) -> dict[float, int]:
    """Slots of the pool by residency; `InputError` for one that the geometry does not allow."""
    try:
        geometry = Geometry(traces.layers, traces.experts, traces.top_k)
    except ValueError as error:
        raise InputError(f"{traces.model}: not the routing of a model: {error}") from None
    try:
        return {residency: geometry.slots(residency) for residency in residencies}
    except ValueError as error:
        raise InputError(f"--residency: {error}") from None


def check(
    policies: Sequence[Policy],
    traces: TraceSet,
    options: ReplayOptions,
    predictor: Predictor | None,
    fitted_on: TraceSet | None,
) -> None:
    """Raise `InputError` for what does not fit together, with what is missing."""
    named: dict[str, Policy] = {}
    for policy in policies:
        known = named.setdefault(policy.name, POLICIES.get(policy.name, policy))
        if known != policy:
            raise InputError(f"policy {policy.name!r}: another one has this name; give yours a name of its own")
    if predictor is not None:
        check_predictor(predictor, traces)
    for policy in policies:
        if policy.forecasts and predictor is None:
            raise InputError(
                f"--policies: {policy.name!r} works on forecasts; give a file of `seqmoe predictor train` "
                "with --predictor"
            )
        if "use" in policy.needs and not hasattr(predictor, "use_sequence"):
            raise InputError(
                f"--policies: {policy.name!r} needs a predictor that forecasts future use directly: a trained one, "
                "mamba2 or transformer"
            )
        if {"popularity", "weights"} & set(policy.needs) and fitted_on is None:
            raise InputError(f"--policies: {policy.name!r} is fitted to other traces; give them with --fit")
        if "warm" in policy.needs and not options.warm_up and not _prefilled(traces):
            raise InputError(
                f"--policies: {policy.name!r} is fitted to the prefill, of which the traces of {traces.model} have "
                "none; let the first steps stand in for it, for example --warm-up 16"
            )
    fitted = any({"popularity", "weights"} & set(policy.needs) for policy in policies)
    if fitted_on is not None and fitted:
        check_fitted(fitted_on, traces)


def check_length(batch: Batch, traces: TraceSet, policies: Sequence[Policy], forecasts: bool) -> None:
    """Raise `InputError` for a batch too long for policies whose scores are arrays over all of its steps."""
    names = ", ".join(policy.name for policy in policies)
    advice = "split the request, or replay it with lru, lfu and belady, which take requests of any length"
    places = batch.steps * traces.layers * max(traces.top_k * len(batch.requests), 3)
    long = f"{traces.model}: a request of {batch.steps:,} steps"
    if places > _EXACT:
        raise InputError(
            f"{long} is too long for the scores of {names}, which are exact to {_EXACT:,} accesses; {advice}"
        )
    size = batch.steps * traces.layers * traces.experts * (_FORECAST_BYTES if forecasts else _ARRAY_BYTES)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        sizes = f"about {size / 2**30:.0f} GiB for {names}, and this machine has {memory / 2**30:.0f}"
        raise InputError(f"{long} needs {sizes}; {advice}")


def _prefilled(traces: TraceSet) -> bool:
    # Sets of traces may be larger than memory: the first hundred tell.
    return any((request.phase == PREFILL).any() for request in islice(traces.requests, 100))
