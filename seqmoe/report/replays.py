"""Records of replay studies, set side by side: one group for each set of traces and batch size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.studies.record import ReplayRecord, latest_of_cells
from seqmoe.report import style
from seqmoe.simulate.policies import policy_of
from seqmoe.simulate.rows import ReplayRow, ahead
from seqmoe.spec.errors import InputError
from seqmoe.spec.replay import UNLIMITED
from seqmoe.spec.study import REFERENCE

NO_LINK = ""


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """A row and the name of its link, `NO_LINK` for a policy that does not prefetch."""

    row: ReplayRow
    link: str

    @property
    def title(self) -> str:
        """The policy's name for people."""
        return title_of(self.row.policy)

    def ahead_of(self, other: Replayed) -> tuple[float, float] | None:
        """95 % interval of the difference of the hit rates, in points, over the same batches: paired bootstrap.

        None where the batches are too few for one (`seqmoe.simulate.rows.LEAST_BATCHES`).
        """
        return ahead(self.row, other.row)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayGroup:
    """Everything on one set of traces on one host with one batch size."""

    host: str
    traces: dict[str, Any]
    predictor: dict[str, Any]
    links: dict[str, float | None]
    batch: int
    warm_up: int
    rows: tuple[Replayed, ...]
    absent: tuple[tuple[str, str, str], ...]

    @property
    def source(self) -> str:
        """Whose routing it is, in words: a hit rate belongs to it, and to no other model."""
        whose = f"real routing of {self.traces['model']}"
        if self.traces.get("name") == REFERENCE:
            whose = "the reference model's own routing"
        return f"{whose}, batches of {self.batch}" if self.batch > 1 else whose

    @property
    def about(self) -> str:
        """Geometry, size, and the predictor behind the forecasts."""
        about = self.traces
        parts = [f"{about.get('layers')} layers of {about.get('experts')} experts, top-{about.get('top_k')}"]
        parts.append(f"{about.get('test', 0):,} of {about.get('requests', 0):,} sequences to test")
        parts.append(f"the first {self.warm_up} steps of each are warm-up")
        if self.predictor:
            parts.append(f"forecasts of {self.predictor['kind']}, {self.predictor['minutes']:.0f} minutes of training")
        return "; ".join(parts)

    @property
    def residencies(self) -> list[float]:
        """Those of the rows, ascending."""
        return sorted({one.row.residency for one in self.rows})

    def find(self, policy: str, residency: float, link: str = NO_LINK) -> Replayed | None:
        """The row of a policy at a residency; one that does not prefetch has no link."""
        for one in self.rows:
            if (one.row.policy, one.row.residency, one.link) == (policy, residency, link):
                return one
        return None

    def line(self, policy: str, link: str = NO_LINK) -> list[Replayed]:
        """A policy's rows by residency, ascending."""
        found = (self.find(policy, residency, link) for residency in self.residencies)
        return [one for one in found if one is not None]

    def link_text(self, link: str) -> str:
        """A link in words."""
        if link == NO_LINK:
            return "none"
        value = self.links.get(link)
        many = "any number" if value is None else f"{value:.2f} a layer"
        return many if link == UNLIMITED or link.replace(".", "").isdigit() else f"{many} ({link})"


def title_of(policy: str) -> str:
    """A policy's name for people; one that is known no longer goes by its own name."""
    if policy in style.POLICIES:
        return style.POLICIES[policy][0]
    try:
        return policy_of(policy).title
    except InputError:
        return policy


def groups_of(records: Iterable[ReplayRecord]) -> list[ReplayGroup]:
    """One group for each host, set of traces and batch size, real traces first; only the event contract.

    Of a name whose traces changed only the newest are taken, and of a row that several cells have the newest.
    """
    kept = [r for r in latest_of_cells(records) if isinstance(r, ReplayRecord) and r.cell.contract == "event"]
    newest: dict[tuple[str, str, int], ReplayRecord] = {}
    for record in sorted(kept, key=lambda record: record.started):
        newest[_host(record), record.cell.traces, record.cell.batch] = record
    groups = []
    for (host, name, batch), last in newest.items():
        same = [
            r for r in kept if (_host(r), r.cell.traces, r.cell.batch, r.digest) == (host, name, batch, last.digest)
        ]
        groups.append(_group(host, sorted(same, key=lambda record: record.started)))
    return sorted(groups, key=lambda group: (group.traces.get("name") == REFERENCE, group.batch))


def _group(host: str, records: Sequence[ReplayRecord]) -> ReplayGroup:
    rows: dict[tuple[str, str, float], Replayed] = {}
    links: dict[str, float | None] = {}
    predictors = [r.observations["predictor"] for r in records if r.status.ok and r.observations["predictor"]]
    predictor = predictors[-1] if predictors else {}
    for record in records:
        # What other forecasts gave is not set beside it.
        if not record.status.ok or record.observations["predictor"] not in ({}, predictor):
            continue
        links |= record.observations["links"]
        names = {value: name for name, value in record.observations["links"].items()}
        for values in record.observations["rows"]:
            row = ReplayRow.from_dict(values)
            link = NO_LINK if row.link == 0 else names[row.link]
            rows[row.policy, link, row.residency] = Replayed(row, link)
    about = max((record.observations["traces"] for record in records), key=len)
    last = records[-1].cell
    absent = tuple((r.cell.panel, r.status.kind.replace("_", " "), r.status.reason) for r in records if not r.status.ok)
    return ReplayGroup(host, about, predictor, links, last.batch, last.warm_up, tuple(rows.values()), absent)


def _host(record: ReplayRecord) -> str:
    return str(record.environment.get("host", "unknown host"))
