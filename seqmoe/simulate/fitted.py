"""Whether traces that policies are fitted to can be fitted to, and are others than those that are replayed."""

from __future__ import annotations

from collections.abc import Iterable

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING, RequestTrace, TraceSet
from seqmoe.traces.summary import column

# What follows a step is what weights are fitted to.
_LEAST_STEPS = 2


def check_fitted(fitted_on: TraceSet, traces: TraceSet) -> None:
    """Raise `InputError` for traces of another geometry, without anything to fit to, or with what is replayed."""
    own = (traces.layers, traces.experts, traces.top_k)
    if (fitted_on.layers, fitted_on.experts, fitted_on.top_k) != own:
        raise InputError(
            f"--fit: traces of {fitted_on.layers} layers of {fitted_on.experts} experts, top-{fitted_on.top_k}, but "
            f"those of {traces.model} have {own[0]} of {own[1]}, top-{own[2]}"
        )
    if not any(_has_steps(request) for request in fitted_on.requests):
        raise InputError(
            f"--fit: none of the {len(fitted_on.requests)} sequences has {_LEAST_STEPS} steps with their experts; give "
            "traces that can be fitted to"
        )
    shared = _shared(fitted_on, traces)
    if shared:
        raise InputError(
            f"--fit: {shared} of the {len(traces.requests)} replayed sequences are among them: the policy would "
            "be judged on what it was fitted to; give others, for example the parts of `seqmoe trace split`"
        )


def _has_steps(request: RequestTrace) -> bool:
    return int((request.experts != MISSING).all(-1).any(-1).sum()) >= _LEAST_STEPS


def _shared(fitted_on: TraceSet, traces: TraceSet) -> int:
    """Replayed requests that ``fitted_on`` holds too: by content, or by name within a data set."""
    contents, names = set(column(fitted_on.requests, "digest")), set(_names(fitted_on))
    found = zip(column(traces.requests, "digest"), _names(traces), strict=True)
    return sum(content in contents or (all(name) and name in names) for content, name in found)


def _names(traces: TraceSet) -> Iterable[tuple[str, str]]:
    return zip(column(traces.requests, "dataset"), column(traces.requests, "identifier"), strict=True)
