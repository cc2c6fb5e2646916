"""The pages on records: one that lists the sets, and one for each with its environment and every cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.report.environments import AnyRecord, environments
from seqmoe.report.frame import system_title
from seqmoe.report.page import fill
from seqmoe.report.site.document import Document
from seqmoe.report.site.navigation import NOWHERE, OVERVIEW
from seqmoe.report.site.record_sets import RecordSet, ran_words
from seqmoe.report.site.table import Cell, Row, Table

OVERVIEW_FILE = "records.html"
_SYSTEM_HEADINGS = ("System", "Model", "Lane", "Hardware", "Workload", "Held", "Repeats", "tok/s", "Status")
_STUDY_HEADINGS = ("Cell", "Panel", "Traces", "Began (UTC)", "Seconds", "Status")


def overview_page(sets: Sequence[RecordSet]) -> Document:
    """Every set of records with its host, how many there are and when they were made."""
    rows = [
        Row(
            (
                Cell(f"{one.suite} on {one.host}", link=one.file),
                Cell(str(len(one.records)), len(one.records)),
                Cell(", ".join(one.lanes)),
                Cell(ran_words(one), wraps=True),
                Cell(one.span[0]),
                Cell(one.span[1]),
            )
        )
        for one in sets
    ]
    caption = "A set is what one suite recorded on one machine; times are UTC."
    headings = ("Set", "Records", "Lanes", "How they ended", "First", "Last")
    table = Table("sets", caption, headings, tuple(rows), numbers=(1,))
    body = fill("records.html.j2", table=table)
    return Document(OVERVIEW_FILE, "Where every number comes from", "Records", body, OVERVIEW, "Records")


def record_page(one: RecordSet) -> Document:
    """One set: the environments that it was made in, and each of its cells."""
    body = fill("record_set.html.j2", one=one, ran=ran_words(one), environments=environments(one.records),
                table=_table(one))  # fmt: skip
    eyebrow = Markup('<a href="{}">Records</a>').format(OVERVIEW_FILE)
    return Document(one.file, f"{one.suite} on {one.host}", eyebrow, body, NOWHERE)


def _table(one: RecordSet) -> Table:
    cells: dict[str, list[AnyRecord]] = {}
    for record in one.records:
        cells.setdefault(record.cell_key, []).append(record)
    caption = "One line for each cell; tok/s is the median over its repeats, never to be compared across lanes."
    systems = [_system(repeats) for group in cells.values() if (repeats := _of_systems(group))]
    if systems:
        return Table("cells", caption, _SYSTEM_HEADINGS, tuple(systems), numbers=(5, 6, 7))
    studies = [_study(record) for record in one.records]
    return Table("cells", "One line for each cell of the study.", _STUDY_HEADINGS, tuple(studies), numbers=(4,))


def _of_systems(group: Sequence[AnyRecord]) -> list[Record]:
    return [record for record in group if isinstance(record, Record)]


def _system(repeats: Sequence[Record]) -> Row:
    cell = repeats[0].cell
    good = [record for record in repeats if record.status.ok]
    speeds = [speed for record in good if isinstance(speed := metrics.decode_tok_s(record), float)]
    speed = float(np.median(speeds)) if speeds else float("nan")
    last = repeats[-1].status
    work = f"{cell.panel}, batch {cell.batch}, {cell.decode_tokens} tokens"
    return Row(
        (
            Cell(system_title(cell), below=cell.execution),
            Cell(cell.model),
            Cell(cell.lane),
            Cell(cell.hardware),
            Cell(work, below=cell.dataset),
            Cell(f"{cell.residency:.0%}", cell.residency),
            Cell(str(len(repeats)), len(repeats)),
            Cell(f"{speed:.1f}" if speeds else "", speed),
            Cell("ok" if good else last.kind.replace("_", " "), below="" if good else last.reason, wraps=True),
        ),
        absent=not good,
    )


def _study(record: AnyRecord) -> Row:
    traces = getattr(record.cell, "traces", "")
    status = record.status
    return Row(
        (
            Cell(getattr(record.cell, "label", record.cell_key), wraps=True),
            Cell(getattr(record.cell, "panel", "")),
            Cell(str(traces)),
            Cell(record.started[:16].replace("T", " ")),
            Cell(f"{record.seconds:.0f}", record.seconds),
            Cell(status.kind.replace("_", " "), below=status.reason, wraps=True),
        ),
        absent=not status.ok,
    )
