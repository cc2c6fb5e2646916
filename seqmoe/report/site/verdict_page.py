"""The page with the verdict on every claim, and the short table of the claims about one figure."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from seqmoe.harness.claims.verdict import Judged
from seqmoe.report.site.document import Document
from seqmoe.report.site.navigation import OVERVIEW
from seqmoe.report.site.table import Cell, Row, Table
from seqmoe.report.verdict_section import COLOURS, section_verdict
from seqmoe.report.verdict_table import note, ours, printed, tolerance

FILE, VERDICTS_DATA = "verdicts.html", "verdicts.csv"


def verdict_page(judged: Sequence[Judged]) -> Document:
    """Every claim of the paper."""
    section = section_verdict(judged)
    data = Markup('<ul class="files" aria-label="Files of this page"><li><a href="{0}">{0}</a></li></ul>')
    return Document(FILE, section.title, section.label, section.body + data.format(VERDICTS_DATA), OVERVIEW, "Verdicts")


def claims_table(judged: Sequence[Judged]) -> Table:
    """A line for each claim: what is printed, the best evidence, and the verdict."""
    caption = "What is printed, the nearest evidence in the records, and what agrees."
    headings = ("Claim", "Verdict", "Paper", "Here", "Lane", "Agrees")
    return Table("claims", caption, headings, tuple(_row(one) for one in judged), style="verdicts")


def _row(one: Judged) -> Row:
    first = one.evidence[0] if one.evidence else None
    here = Cell("–", "") if first is None else Cell(ours(one, first), below=first.basis, wraps=True)
    model = one.claim.model if one.claim.model not in ("all", "-") else ""
    statement = one.claim.statement[:1].upper() + one.claim.statement[1:]
    return Row(
        (
            Cell(statement, below=model, wraps=True),
            Cell(one.verdict, below=note(one), colour=COLOURS[one.verdict], wraps=True),
            Cell(printed(one), "" if one.claim.value is None else one.claim.value),
            here,
            Cell(first.lane if first else "–"),
            Cell(tolerance(one)),
        ),
        kind=one.verdict,
    )
