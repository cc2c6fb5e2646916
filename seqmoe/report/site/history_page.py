"""The page on benchmarks: what each took, revision by revision, machine by machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from seqmoe.harness.against.history import Point
from seqmoe.report import style
from seqmoe.report.page import fill
from seqmoe.report.site.document import Document
from seqmoe.report.site.history import Track, history_data, history_svg, tracks_of
from seqmoe.report.site.navigation import OVERVIEW
from seqmoe.report.site.table import Cell, Row, Table

HISTORY_DATA = "history.csv"


@dataclass(frozen=True, slots=True)
class History:
    """The page and its data."""

    page: Document
    data: pd.DataFrame


def history_page(points: Sequence[Point]) -> History | None:
    """None where no benchmark was kept."""
    if not points:
        return None
    tracks = tracks_of(points)
    machines = []
    with style.theme():
        for at, machine in enumerate(dict.fromkeys(track.machine for track in tracks)):
            own = [track for track in tracks if track.machine == machine]
            pictures = [Markup(history_svg(track, f"h{at}-{index}")) for index, track in enumerate(own)]
            machines.append((machine, _table(f"history-{at}", own), pictures))
    body = fill("history.html.j2", machines=machines, data=HISTORY_DATA)
    page = Document(
        "history.html", "What our own code takes, revision by revision", "History", body, OVERVIEW, "History"
    )
    return History(page, history_data(points))


def _table(name: str, tracks: Sequence[Track]) -> Table:
    rows = []
    for track in tracks:
        file, _, test = track.benchmark.partition("::")
        medians = [point.median for point in track.points]
        last = track.points[-1]
        rows.append(
            Row(
                (
                    Cell(test or file, below=file if test else "", wraps=True),
                    Cell(str(len(medians)), len(medians)),
                    Cell(last.revision[:10], below=last.time[:16].replace("T", " ")),
                    Cell(track.text(last.median), last.median),
                    Cell(track.text(min(medians)), min(medians)),
                    Cell(track.text(max(medians)), max(medians)),
                )
            )
        )
    headings = ("Benchmark", "Runs", "Last revision", "Last median", "Least", "Most")
    return Table(name, "Medians of a call, all on this machine.", headings, tuple(rows), numbers=(1, 3, 4, 5))
