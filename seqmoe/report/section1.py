"""The page's part on figure 1, and its table for a terminal."""

from __future__ import annotations

from seqmoe.report.figure1 import Figure1
from seqmoe.report.page import Section, fill
from seqmoe.report.step_sections import Drawing, pictures_of

TITLE = "What offloading leaves of full-load speed"
HEADINGS_1 = ("System", "tok/s", "Paper", "Lane")


def section1(figure: Figure1) -> Section:
    """Figure 1."""
    drawings: list[Drawing] = [figure.draw_speeds, figure.draw_sizes]
    body = fill(
        "steps.html.j2",
        suite="fig1",
        recorded=bool(figure.rows),
        lead="One model whose experts are 93% of its bytes and of which a token needs 6%, on a GPU that holds fewer "
        "than half of them.",
        pictures=pictures_of(drawings, "f1", width=6.4),
        sentences=figure.sentences(),
        headings=HEADINGS_1,
        rows=rows1(figure),
        method="Sizes follow from the model's configuration. Speeds are the simulator's, in virtual time on the "
        "profile of an RTX 4090 and on synthetic routing, unless measurements are there.",
        commands="nox -s reproduce-fig1",
    )
    return Section("1", TITLE, body, bool(figure.rows))


def rows1(figure: Figure1) -> list[tuple[str, ...]]:
    """The table's rows as text."""
    return [
        (row.title, f"{row.summary.median:.1f}" if row.summary else row.reason, f"{row.printed:g}", row.lane)
        for row in figure.rows
    ]
