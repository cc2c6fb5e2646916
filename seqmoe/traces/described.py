"""What a person knows of traces beyond what their source tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces import validate


def described(traces: TraceSet, where: str, **told: Any) -> TraceSet:
    """The set with some of its fields told anew (those that are not None), for example ``router`` or ``licence``.

    Raises `InputError`, prefixed with ``where``, if the requests contradict it: an expert beyond ``experts``, or
    weights that do not add up to 1 under a router that renormalises.
    """
    changed = {name: value for name, value in told.items() if value is not None}
    if not changed:
        return traces
    try:
        again = replace(traces, **changed)
        for index, request in enumerate(traces.requests):
            again.check(request, f"request {index}")
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    if "router" in changed:
        for index, request in enumerate(traces.requests):
            if request.weights is not None:
                place = validate.at(f"{where}: request {index}")
                validate.weights(request.weights, request.experts, again.router, place, validate.TOLERANCE)
    return again
