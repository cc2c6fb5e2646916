"""The replay's rows as a data frame, and as a table: hit rates by residency, and what moved over the link."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from seqmoe.report import style
from seqmoe.report.predictor_tables import Box, PredictorTable
from seqmoe.report.replays import NO_LINK, Replayed, ReplayGroup, title_of
from seqmoe.simulate.policies import POLICIES
from seqmoe.spec.replay import UNLIMITED

# Of what moves over the link the table tells at one residency; the data have all.
COST_RESIDENCY = 0.25
_COLUMNS = (
    "host", "traces", "model", "digest", "batch", "policy", "title", "link", "experts_per_layer", "residency", "slots",
    "hit_rate", "low", "high", "assignment_rate",
    "gap_recovered", "accesses", "tokens", "distinct", "loads_per_token", "sent_per_token",
    "used_share", "late", "bytes_per_token", "bytes_on_demand", "bytes_prefetched", "bytes_wasted", "bytes_late",
)  # fmt: skip


def rows_frame(groups: Iterable[ReplayGroup]) -> pd.DataFrame:
    """One line for each row of every group; ``experts_per_layer`` is infinite for an unlimited link."""
    return pd.DataFrame([_values(group, one) for group in groups for one in group.rows], columns=list(_COLUMNS))


def replay_table(group: ReplayGroup) -> PredictorTable:
    """Every policy with every link, in the order of the registry; bounds are left out of what is the best."""
    residencies = group.residencies
    places = list(dict.fromkeys((one.row.policy, one.link) for one in group.rows))
    order, links = list(POLICIES), [NO_LINK, *group.links]
    places.sort(key=lambda place: (links.index(place[1]), _place(order, place[0]), place[0]))
    cost = min(residencies, key=lambda residency: abs(residency - COST_RESIDENCY))
    bounds = {place for place in places if _oracle(place[0])}
    columns: list[list[Box]] = [
        [Box(title_of(policy), policy, title_of(policy)) for policy, _ in places],
        [_link(group, link, float(links.index(link))) for _, link in places],
    ]
    for residency in residencies:
        rates = [_rate(group.find(policy, residency, link)) for policy, link in places]
        columns.append(_best(rates, places, bounds))
    at_cost = [group.find(policy, cost, link) for policy, link in places]
    columns.append(_best([_gap(one) for one in at_cost], places, bounds))
    columns += [
        [_loads(one) for one in at_cost],
        [_prefetched(one) for one in at_cost],
        [_bytes(one) for one in at_cost],
    ]
    headings = ["Policy", "Link", *(f"{residency:.0%}" for residency in residencies)]
    headings += [f"Gap at {cost:.0%}", "Loads", "Prefetched", "Bytes"]
    colours = [
        style.POLICIES.get(p, style.POLICIES.get(p.partition("+")[0], ("", style.MUTED, "")))[1] for p, _ in places
    ]
    about = f"{group.about}. Link: prefetches in a layer's time. Loads, prefetches, bytes: per token at {cost:.0%}"
    title = f"Expert hit rates on {group.source}"
    # A terminal has room for the hit rates and the gap.
    short = tuple(range(len(residencies) + 3))
    return PredictorTable(title, about, tuple(headings), tuple(zip(*columns, strict=True)), tuple(colours), short)


def _values(group: ReplayGroup, one: Replayed) -> dict[str, object]:
    row = one.row
    moved = row.bytes
    return {
        "host": group.host,
        "traces": group.traces.get("name"),
        "model": group.traces["model"],
        "digest": group.traces["digest"],
        "batch": group.batch,
        "policy": row.policy,
        "title": one.title,
        "link": one.link,
        "experts_per_layer": math.inf if row.link is None else row.link,
        "low": row.interval[0] if row.interval else None,
        "high": row.interval[1] if row.interval else None,
        "bytes_on_demand": moved.on_demand if moved else None,
        "bytes_prefetched": moved.prefetched if moved else None,
        "bytes_wasted": moved.wasted if moved else None,
        "bytes_late": moved.late if moved else None,
    } | {name: getattr(row, name) for name in _COLUMNS if hasattr(row, name) and name not in ("policy", "link")}


def _link(group: ReplayGroup, link: str, key: float) -> Box:
    """Experts per layer; below it the hardware profile that they follow from."""
    if link == NO_LINK:
        return Box("–", key=key)
    value = group.links[link]
    number = "any" if value is None else f"{value:.2f}"
    return Box(number, "" if link in (UNLIMITED, number) else link, key)


def _rate(one: Replayed | None) -> Box:
    if one is None:
        return Box("–", key=-1.0)
    spread = "" if one.row.interval is None else " to ".join(f"{100 * end:.1f}" for end in one.row.interval)
    return Box(f"{100 * one.row.hit_rate:.1f}%", spread, one.row.hit_rate)


def _gap(one: Replayed | None) -> Box:
    if one is None or one.row.gap_recovered is None:
        return Box("–", key=-9.0)
    return Box(f"{100 * one.row.gap_recovered:.0f}%".replace("-", "−"), key=one.row.gap_recovered)


def _loads(one: Replayed | None) -> Box:
    if one is None:
        return Box("–", key=-1.0)
    late = one.row.late / one.row.tokens
    return Box(f"{one.row.loads_per_token:.1f}", f"{late:.2f} late" if one.row.sent else "", one.row.loads_per_token)


def _prefetched(one: Replayed | None) -> Box:
    if one is None or one.row.used_share is None:
        return Box("", key=0.0)
    return Box(f"{one.row.sent_per_token:.1f}", f"{one.row.used_share:.0%} used", one.row.sent_per_token)


def _bytes(one: Replayed | None) -> Box:
    if one is None or one.row.bytes_per_token is None:
        return Box("–", key=-1.0)
    megabytes = one.row.bytes_per_token / 1e6
    return Box(f"{megabytes:.2f} MB" if megabytes < 10 else f"{megabytes:.0f} MB", key=one.row.bytes_per_token)


def _best(boxes: list[Box], places: Sequence[tuple[str, str]], bounds: set[tuple[str, str]]) -> list[Box]:
    """Mark the best of each link, a bound being none."""
    best: dict[str, float] = {}
    for box, place in zip(boxes, places, strict=True):
        if place not in bounds and isinstance(box.key, float):
            best[place[1]] = max(best.get(place[1], -math.inf), box.key)
    return [
        Box(box.text, box.below, box.key, best=place not in bounds and box.key == best[place[1]])
        for box, place in zip(boxes, places, strict=True)
    ]


def _place(order: list[str], policy: str) -> int:
    base = policy.partition("+")[0]
    return order.index(base) if base in order else len(order)


def _oracle(policy: str) -> bool:
    base = policy.partition("+")[0]
    return base in POLICIES and POLICIES[base].oracle
