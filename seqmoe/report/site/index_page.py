"""The first page: what was observed, the verdicts in numbers, and a picture that leads to each figure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seqmoe.harness.claims.verdict import Judged, counts
from seqmoe.report.page import fill
from seqmoe.report.parts import Part
from seqmoe.report.site.document import Document
from seqmoe.report.site.navigation import OVERVIEW
from seqmoe.report.site.record_sets import RecordSet
from seqmoe.report.verdict_section import COLOURS

FILE = "index.html"


@dataclass(frozen=True, slots=True)
class Preview:
    """A figure on the first page; no ``picture`` where none was drawn."""

    file: str
    picture: str
    label: str
    title: str
    finding: str
    recorded: bool


def index_page(
    parts: Sequence[Part],
    drawn: Collection[str],
    judged: Sequence[Judged],
    others: Sequence[Document],
    sets: Sequence[RecordSet],
) -> Document:
    """``others`` are the pages beside those of the figures; figures with records come first, newest first."""
    order = sorted(parts, key=_newest, reverse=True)
    body = fill(
        "index.html.j2",
        facts=[fact for part in parts for fact in part.facts],
        verdicts=[(name, number, COLOURS[name]) for name, number in counts(judged).items()] if judged else [],
        claims=len(judged),
        previews=[_preview(part, part.section.name in drawn) for part in order],
        others=others,
        records=sum(len(one.records) for one in sets),
        hosts=list(dict.fromkeys(one.host for one in sets)),
    )
    title = "What was observed here, beside what the paper prints"
    return Document(FILE, title, "Overview", body, OVERVIEW, "Overview")


def _newest(part: Part) -> str:
    return max((record.started for record in part.records), default="")


def _preview(part: Part, drawn: bool) -> Preview:
    section = part.section
    return Preview(
        f"{section.name}.html",
        f"{section.name}.svg" if drawn else "",
        section.label,
        section.title,
        part.finding,
        section.recorded,
    )
