"""Records that belong together: those of one suite on one machine, as they stand in one file of the store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from seqmoe.report.environments import AnyRecord

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class RecordSet:
    """The records of one ``suite`` on one ``host``."""

    host: str
    suite: str
    records: tuple[AnyRecord, ...]

    @property
    def file(self) -> str:
        """The file of its page."""
        return f"records-{_UNSAFE.sub('-', self.host)}-{_UNSAFE.sub('-', self.suite)}.html"

    @property
    def statuses(self) -> dict[str, int]:
        """How many records have each status, most first."""
        return dict(Counter(record.status.kind for record in self.records).most_common())

    @property
    def lanes(self) -> list[str]:
        """The lanes that records of systems come from; a study is computed from traces and has none."""
        return list(dict.fromkeys(getattr(record.cell, "lane", "replayed") for record in self.records))

    @property
    def span(self) -> tuple[str, str]:
        """When the first and the last began, UTC to the minute."""
        started = sorted(record.started[:16].replace("T", " ") for record in self.records)
        return started[0], started[-1]


def record_sets(records: Iterable[AnyRecord]) -> list[RecordSet]:
    """The sets, by host and suite."""
    found: dict[tuple[str, str], list[AnyRecord]] = {}
    for record in records:
        key = (str(record.environment.get("host", "unknown host")), record.cell.suite)
        found.setdefault(key, []).append(record)
    return [RecordSet(host, suite, tuple(group)) for (host, suite), group in sorted(found.items())]


def ran_words(one: RecordSet) -> str:
    """How its records ended: "70 ok, 20 unsupported"."""
    return ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in one.statuses.items())
