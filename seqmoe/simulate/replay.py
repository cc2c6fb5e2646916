"""The hit-rate replay: a trace, a retention policy and a residency in, hit rates under the project's contract out."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.simulate import POLICIES, replay
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.trace import DECODE, MISSING, RequestTrace, TraceSet

CONTRACTS = ("event", "sequential")


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """Hit rate of one policy at one residency over the decode steps of all requests.

    ``accesses`` counts distinct experts per event under the event contract, single accesses under the sequential one;
    ``loads`` the experts brought in on demand during decode.
    """

    policy: str
    residency: float
    slots: int
    contract: str
    hit_rate: float
    hits: int
    accesses: int
    loads: int
    loads_per_token: float

    def as_dict(self) -> dict[str, float | int | str]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """A request as (step, layer) events: ``layer`` int32 [n], ``start`` int64 [n + 1] into ``expert`` int32 [m]."""

    layer: NDArray[np.int32]
    start: NDArray[np.int64]
    expert: NDArray[np.int32]
    first_decode: int


def events_of(request: RequestTrace) -> Events:
    """Events in token order, layers ascending; entries that the source lacks are no events."""
    steps, layers, top_k = request.experts.shape
    flat = request.experts.reshape(steps * layers, top_k)
    present = (flat != MISSING).all(-1)
    layer = np.tile(np.arange(layers, dtype=np.int32), steps)[present]
    decode = np.repeat(request.phase == DECODE, layers)[present]
    first_decode = int(decode.argmax()) if decode.any() else len(layer)
    start = np.arange(len(layer) + 1, dtype=np.int64) * top_k
    return Events(layer, start, flat[present].astype(np.int32).ravel(), first_decode)


def replay_traces(traces: TraceSet, policies: list[str], residencies: list[float], contract: str) -> list[ReplayRow]:
    """Replay every request from a cold pool, prefill as warm-up, and add up the counts of the decode steps.

    Raises `InputError` for an unknown policy or contract, or a residency that the geometry does not allow.
    """
    for policy in policies:
        if policy not in POLICIES:
            raise InputError(f"--policies: {policy!r} is unknown; {nearest(policy, POLICIES)}")
    if contract not in CONTRACTS:
        raise InputError(f"--contract: {contract!r} is unknown; {nearest(contract, CONTRACTS)}")
    geometry = Geometry(traces.layers, traces.experts, traces.top_k)
    try:
        slots_of = {residency: geometry.slots(residency) for residency in residencies}
    except ValueError as error:
        raise InputError(f"--residency: {error}") from None
    requests = [events_of(request) for request in traces.requests]
    tokens = sum(request.decode_steps for request in traces.requests)
    if not tokens:
        raise InputError(f"{traces.model}: the trace has no decode steps to count")
    return [
        _row(traces, requests, tokens, policy, residency, slots_of[residency], contract)
        for policy in policies
        for residency in residencies
    ]


def _row(
    traces: TraceSet, requests: list[Events], tokens: int, policy: str, residency: float, slots: int, contract: str
) -> ReplayRow:
    hits = needed = loads = 0
    for events in requests:
        counts = replay(
            traces.layers,
            traces.experts,
            slots,
            events.layer,
            events.start,
            events.expert,
            events.first_decode,
            policy,
            sequential=contract == "sequential",
        )
        hits, needed, loads = hits + counts.hits, needed + counts.needed, loads + counts.loads
    return ReplayRow(policy, residency, slots, contract, hits / needed, hits, needed, loads, loads / tokens)
