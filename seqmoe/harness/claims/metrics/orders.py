"""Claims that one policy is ahead of another at every residency, on replayed routing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import Evidence
from seqmoe.harness.claims.metrics.base import Metric, Place
from seqmoe.harness.claims.metrics.hits import model_of, replay_place, rows_of
from seqmoe.simulate.rows import ReplayRow, ahead
from seqmoe.spec.claim import Claim

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Lead:
    """How far a policy is ahead of another at a residency, in points, with the 95 % interval where there is one."""

    residency: float
    pair: Pair
    points: float
    interval: tuple[float, float] | None

    @property
    def behind(self) -> bool:
        """Whether it is on the wrong side beyond chance."""
        return self.points < 0 and (self.interval is None or self.interval[1] < 0)

    @property
    def shown(self) -> bool:
        """Whether it is ahead beyond chance."""
        return self.points > 0 and (self.interval is None or self.interval[0] > 0)

    @property
    def text(self) -> str:
        """The lead in words."""
        sign = f"{self.points:+.1f}".replace("-", "−")
        return f"{self.pair[0]} {sign} points to {self.pair[1]} at {self.residency:.0%}"


def _ahead(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Every one of ``pairs`` (better, worse): strictly ahead beyond chance at every residency that was replayed.

    Pairs of ``at_least`` need only not be behind, ``alike`` are at most ``slack`` points apart. ``link`` names the link
    of policies that prefetch.
    """
    found = []
    for (place, model), rows in _groups(context, options.get("link", "")).items():
        leads = {kind: _leads(rows, [tuple(pair) for pair in options.get(kind, ())]) for kind in
                 ("pairs", "at_least", "alike")}  # fmt: skip
        every = [lead for kind in leads.values() for lead in kind]
        if not every:
            continue
        wrong = [lead for kind in ("pairs", "at_least") for lead in leads[kind] if lead.behind]
        unsure = [lead for lead in leads["pairs"] if not lead.shown and not lead.behind]
        apart = [lead for lead in leads["alike"] if abs(lead.points) > options.get("slack", 0.0)]
        failed = [*wrong, *unsure, *apart]
        residencies = sorted({lead.residency for lead in every})
        spread = f"at {', '.join(f'{residency:.0%}' for residency in residencies)}"
        text = f"holds {spread}" if not failed else _told(failed, len(every))
        own = context.printed_models() if claim.model == "all" else claim.model.split(" and ")
        found.append(
            Evidence(place.lane, model, f"{place.basis}, {place.host}", model in own,
                     agrees=not failed, contradicts=bool(wrong), text=text)
        )  # fmt: skip
    return found


def _told(failed: list[_Lead], of: int) -> str:
    worst = sorted(failed, key=lambda lead: -abs(lead.points))[:3]
    return f"{len(failed)} of {of} comparisons fail: " + "; ".join(lead.text for lead in worst)


def _groups(context: Context, link: str) -> dict[tuple[Place, str], dict[tuple[str, float], ReplayRow]]:
    """Rows by policy and residency of each model and place: without prefetching, or over ``link``."""
    found: dict[tuple[Place, str], dict[tuple[str, float], ReplayRow]] = {}
    for record, row, name in rows_of(context):
        if name == link:
            key = (replay_place(context, record, link), model_of(context, record))
            found.setdefault(key, {})[row.policy, row.residency] = row
    return found


def _leads(rows: Mapping[tuple[str, float], ReplayRow], pairs: list[Pair]) -> list[_Lead]:
    residencies = sorted({residency for _, residency in rows})
    found = []
    for residency in residencies:
        for pair in pairs:
            better, worse = (rows.get((policy, residency)) for policy in pair)
            if better is not None and worse is not None:
                points = 100 * (better.hit_rate - worse.hit_rate)
                found.append(_Lead(residency, pair, points, ahead(better, worse)))
    return found


AHEAD = Metric(_ahead)
