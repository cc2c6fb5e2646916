"""The page that sets systems, and machines, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from seqmoe.harness.comparing.judging import VERDICTS
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import LEAST_RATIO, LEAST_REPEATS, SIGNIFICANCE, Summary
from seqmoe.report.environments import AnyRecord
from seqmoe.report.page import fill
from seqmoe.report.site.comparison import Beside, comparison_data, hosts_beside, systems_beside
from seqmoe.report.site.document import Document
from seqmoe.report.site.navigation import OVERVIEW
from seqmoe.report.site.table import Cell, Row, Table

COMPARISON_DATA = "comparison.csv"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The page and its data."""

    page: Document
    data: pd.DataFrame


def comparison_page(records: Sequence[AnyRecord]) -> Comparison | None:
    """None where no two systems did the same work."""
    timed = [record for record in records if isinstance(record, Record)]
    systems, hosts = systems_beside(timed), hosts_beside(timed)
    if not systems and not hosts:
        return None
    counted = Counter(one.judged.verdict for one in systems)
    body = fill(
        "comparison.html.j2",
        counts=[(name, counted[name]) for name in VERDICTS if counted[name]],
        pairs=len(systems),
        systems=_table("systems", systems, "System B is the one with the higher median."),
        hosts=_table("hosts", hosts, "The same cell, measured on two machines.") if hosts else None,
        least=LEAST_REPEATS,
        significance=SIGNIFICANCE,
        ratio=LEAST_RATIO,
        data=COMPARISON_DATA,
    )
    page = Document("comparison.html", "Systems side by side", "Comparison", body, OVERVIEW, "Comparison")
    return Comparison(page, comparison_data([*systems, *hosts]))


def _table(name: str, found: Sequence[Beside], about: str) -> Table:
    caption = f"{about} Speeds are medians in tok/s, the ratio is B's over A's with its 95% bootstrap interval."
    headings = ("Work", "Lane", "A", "B", "A's speed", "B's speed", "B / A", "p", "B is")
    return Table(name, caption, headings, tuple(_row(one) for one in found), numbers=(4, 5, 6, 7))


def _row(one: Beside) -> Row:
    judged = one.judged
    p = "" if judged.p_value is None else f"{judged.p_value:.2g}"
    return Row(
        (
            Cell(one.work, wraps=True),
            Cell(one.lane),
            Cell(one.a, wraps=True),
            Cell(one.b, wraps=True),
            _speed(judged.a),
            _speed(judged.b),
            _ratio(judged.ratio),
            Cell(p, "" if judged.p_value is None else judged.p_value),
            Cell(judged.verdict, below=judged.note),
        ),
        kind=judged.verdict,
    )


def _speed(summary: Summary | None) -> Cell:
    return Cell("", "") if summary is None else Cell(f"{summary.median:.4g}", summary.median)


def _ratio(summary: Summary | None) -> Cell:
    if summary is None:
        return Cell("", "")
    interval = f"{summary.low:.2f} to {summary.high:.2f}" if summary.count > 1 else ""
    return Cell(f"{summary.median:.2f}", summary.median, below=interval)
