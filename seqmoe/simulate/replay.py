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
    ``loads`` the experts brought in on demand during decode. ``late`` is 0: nothing is prefetched. ``gap_recovered`` is
    the share of the way from LRU to Belady, None where the two are equal; ``bytes_per_token`` None where the trace does
    not tell an expert's size.
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
    late: int
    bytes_per_token: float | None
    gap_recovered: float | None

    def as_dict(self) -> dict[str, float | int | str | None]:
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
    try:
        geometry = Geometry(traces.layers, traces.experts, traces.top_k)
    except ValueError as error:
        raise InputError(f"{traces.model}: not the routing of a model: {error}") from None
    try:
        slots_of = {residency: geometry.slots(residency) for residency in residencies}
    except ValueError as error:
        raise InputError(f"--residency: {error}") from None
    requests = [events_of(request) for request in traces.requests]
    tokens = sum(request.decode_steps for request in traces.requests)
    if not tokens:
        raise InputError(f"{traces.model}: the trace has no decode steps to count")
    if not any(len(events.layer) > events.first_decode for events in requests):
        raise InputError(f"{traces.model}: no decode step of the trace has its experts")
    rows = []
    for residency in residencies:
        counts = {
            policy: _count(traces, requests, policy, slots_of[residency], contract)
            for policy in dict.fromkeys([*policies, "lru", "belady"])
        }
        rates = {policy: count.hits / count.needed for policy, count in counts.items()}
        gap = rates["belady"] - rates["lru"]
        for policy in policies:
            count = counts[policy]
            row = ReplayRow(
                policy=policy,
                residency=residency,
                slots=slots_of[residency],
                contract=contract,
                hit_rate=rates[policy],
                hits=count.hits,
                accesses=count.needed,
                loads=count.loads,
                loads_per_token=count.loads / tokens,
                late=0,
                bytes_per_token=count.loads * traces.expert_bytes / tokens if traces.expert_bytes else None,
                gap_recovered=(rates[policy] - rates["lru"]) / gap if gap > 0 else None,
            )
            rows.append(row)
    return sorted(rows, key=lambda row: policies.index(row.policy))


@dataclass(frozen=True, slots=True)
class _Count:
    hits: int
    needed: int
    loads: int


def _count(traces: TraceSet, requests: list[Events], policy: str, slots: int, contract: str) -> _Count:
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
    return _Count(hits, needed, loads)
