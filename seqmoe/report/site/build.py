"""The whole site: which pages there are, in their order, and the data files that belong to them alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from seqmoe.harness.against.history import Point
from seqmoe.harness.claims.verdict import Judged
from seqmoe.report.environments import AnyRecord
from seqmoe.report.parts import Part
from seqmoe.report.site.comparison_page import COMPARISON_DATA, comparison_page
from seqmoe.report.site.document import Document, render
from seqmoe.report.site.figure_page import figure_page
from seqmoe.report.site.history_page import HISTORY_DATA, history_page
from seqmoe.report.site.index_page import index_page
from seqmoe.report.site.record_pages import overview_page, record_page
from seqmoe.report.site.record_sets import record_sets
from seqmoe.report.site.table_pages import table_pages
from seqmoe.report.site.verdict_page import VERDICTS_DATA, verdict_page
from seqmoe.report.verdict_section import verdicts_data
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class Site:
    """The text of every page and the data of its tables, by file name."""

    pages: dict[str, str]
    data: dict[str, pd.DataFrame] = field(default_factory=dict)


def build_site(
    home: Home,
    out: Path,
    parts: Sequence[Part],
    drawn: Collection[str],
    pictured: Collection[str],
    records: Sequence[AnyRecord],
    judged: Sequence[Judged],
    history: Sequence[Point] = (),
) -> Site:
    """Every page of the site.

    ``drawn`` and ``pictured`` are the stems of the figures that have files, and of those that are PNG too; ``out`` is
    where data may lie that other commands wrote; ``history`` is what benchmarks took. Without ``judged`` the site is of
    one suite alone.
    """
    used = {id(record): record for part in parts for record in part.records}
    sets = record_sets(records if judged else used.values())
    data: dict[str, pd.DataFrame] = {}
    figures = [
        figure_page(part, judged, sets, part.section.name in drawn, part.section.name in pictured) for part in parts
    ]
    overview: list[Document] = []
    if judged:
        overview.append(verdict_page(judged))
        data[VERDICTS_DATA] = verdicts_data(judged)
    if (comparison := comparison_page(list(used.values()))) is not None:
        overview.append(comparison.page)
        data[COMPARISON_DATA] = comparison.data
    if (kept := history_page(history)) is not None:
        overview.append(kept.page)
        data[HISTORY_DATA] = kept.data
    overview.append(overview_page(sets))
    tables = table_pages(home, out, judged) if judged else []
    index = index_page(parts, drawn, judged, [*overview, *tables], sets)
    return Site(render([index, *overview, *figures, *tables, *(record_page(one) for one in sets)]), data)
