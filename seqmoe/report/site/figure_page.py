"""The page of one figure: what it shows, what the paper claims of it, its files, and the records it was made from."""

from __future__ import annotations

from collections.abc import Sequence

from seqmoe.harness.claims.verdict import Judged
from seqmoe.report.page import fill
from seqmoe.report.parts import Part
from seqmoe.report.site.document import Document
from seqmoe.report.site.navigation import FIGURES
from seqmoe.report.site.record_sets import RecordSet
from seqmoe.report.site.table import Table
from seqmoe.report.site.verdict_page import claims_table


def figure_page(part: Part, judged: Sequence[Judged], sets: Sequence[RecordSet], drawn: bool, png: bool) -> Document:
    """``drawn`` says that the figure has files, ``png`` that a PNG is among them."""
    section = part.section
    own = {id(record) for record in part.records}
    sources = [one for one in sets if any(id(record) in own for record in one.records)]
    body = fill(
        "figure_page.html.j2",
        body=section.body,
        files=[f"{section.name}.{suffix}" for suffix in ("csv", "svg", *(["png"] if png else []))] if drawn else [],
        sources=sources,
        count=len(part.records),
        claims=claims_of(part.figure.partition("-")[0], judged),
    )
    return Document(
        f"{section.name}.html", section.title, section.label, body, FIGURES, _short(section.label), not section.recorded
    )


def claims_of(figure: str, judged: Sequence[Judged]) -> Table | None:
    """The paper's claims about one figure or table, None if there are none."""
    found = [one for one in judged if one.claim.figure == figure]
    return claims_table(found) if found else None


def _short(label: str) -> str:
    return label.removeprefix("Figure ")
