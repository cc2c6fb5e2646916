"""Synthetic records of the figure 3 and 7 suites: plausible numbers, chosen by the test, never measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from report_samples import ENVIRONMENT, HOME

from seqmoe.harness.record import Status
from seqmoe.harness.studies.record import SCHEMA, ReplayRecord
from seqmoe.simulate.policies import policy_of
from seqmoe.simulate.rows import Bytes, Moved, ReplayRow, recovered
from seqmoe.spec.replay import ReplayCell, experts_per_layer, load_replay_suite

# Hit rate at 15 % residency; what is missing falls with more slots, and prefetching takes a part of it away.
RATES = {
    "lru": 0.44, "lfu": 0.47, "prefill_hot": 0.34, "belady": 0.68, "belady_8": 0.675, "lfu_decay": 0.49,
    "seqmoe_cache_only": 0.54, "seqmoe": 0.54, "seqmoe_infinity": 0.53, "learned": 0.57, "seqmoe_learned": 0.57,
}  # fmt: skip
BATCHES = 12
# Layers, and bands, with the tokens of each.
PLACES = ((24, 125), (2, 62))


def rate_of(policy: str, residency: float, link: float | None, rates: dict[str, float] = RATES) -> float:
    """The hit rate of a row; 0.55 at 15 % for what is not listed."""
    missing = (1 - rates.get(policy, 0.55)) * (1 - residency) ** 2 / 0.85**2
    return 1 - missing * {0.0: 1.0, None: 0.6}.get(link, 0.75)


def row(policy: str, residency: float, link: float | None, rates: dict[str, float] = RATES) -> ReplayRow:
    """A row with batches around its rate."""
    rate = rate_of(policy, residency, link, rates)
    hits = [int(1000 * (rate + 0.02 * np.sin(index))) for index in range(BATCHES)]
    rate = sum(hits) / (1000 * BATCHES)
    lru, belady = (rate_of(name, residency, 0.0, rates) for name in ("lru", "belady"))
    loads = 96 * (1 - rate)
    sent = 0.0 if link == 0 else 20.0
    return ReplayRow(
        policy, residency, round(768 * residency), "event", rate, (rate - 0.01, rate + 0.01), sum(hits), 1000 * BATCHES,
        4.0, int(125 * loads), loads, link, 5, int(125 * sent), sent, None if link == 0 else 0.6,
        1e6 * (loads + sent), Bytes(1e6 * loads, 1e6 * sent, 2e5 * sent, 4e4), recovered(rate, lru, belady), 125,
        (rate,) * 24, ((0, rate - 0.01), (64, rate)), tuple((h, 1000) for h in hits),
        rate, 1_000_000, *(moved(places, int(125 * loads), int(125 * sent), tokens) for places, tokens in PLACES),
    )  # fmt: skip


def moved(places: int, loads: int, sent: int, tokens: int) -> Moved:
    """The same in each place."""
    columns = (sent // 50, loads, sent, sent // 5)
    return Moved(*((count // places,) * places for count in columns), tokens=(tokens,) * places)


def record(
    cell: ReplayCell, status: Status | None = None, rates: dict[str, float] = RATES, **changes: Any
) -> ReplayRecord:
    """A record of ``cell``; ``changes`` are observations."""
    name = cell.traces
    about = {
        "digest": "0123456789ab", "name": name, "model": "reference" if name == "reference" else "gpt-oss-20b",
        "requests": 393, "tokens": 132_660, "layers": 24, "experts": 32, "top_k": 4, "train": 354, "test": 39,
    }  # fmt: skip
    observed: dict[str, Any] = {"traces": about}
    if status is None or status.ok:
        links = {link: experts_per_layer(HOME, link) for link in cell.links}
        links = {link: None if value == float("inf") else value for link, value in links.items()}
        rows = [
            row(policy, residency, link, rates).as_dict()
            for policy in cell.policies
            for link in (links.values() if policy_of(policy).prefetch else (0.0,))
            for residency in cell.residencies
        ]
        predictor = {"kind": "mamba2", "from": "fig8", "minutes": 12.0, "file": "x.safetensors"}
        observed |= {"rows": rows, "links": links, "predictor": predictor}
    observed |= changes
    return ReplayRecord(
        SCHEMA,
        "replay",
        cell,
        cell.key,
        status or Status("ok"),
        observed,
        dict(ENVIRONMENT),
        "2026-01-01T00:00:00Z",
        60.0,
    )


def records(suite: str, traces: str | None = None, **changes: Any) -> list[ReplayRecord]:
    """What a quick run of a suite might record."""
    cells = load_replay_suite(HOME.suites / f"{suite}.toml").cells("quick", traces=traces)
    return [record(cell, **changes) for cell in cells]
