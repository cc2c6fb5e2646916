"""From records to files: the figure, its data, and the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seqmoe.harness.record import Record
from seqmoe.report import style
from seqmoe.report.figure6 import Figure6
from seqmoe.report.frame import records_frame
from seqmoe.report.page import render
from seqmoe.report.paper import figure6_bars
from seqmoe.report.summary import summarise
from seqmoe.report.table import ShortTable, short_table
from seqmoe.spec.paths import Home

_DPI = 160


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """What was written."""

    page: Path
    png: Path
    svg: Path
    csv: Path


@dataclass(frozen=True, slots=True)
class Report:
    """The files, and the short table that a terminal shows."""

    paths: ReportPaths
    table: ShortTable


def write_report(records: Iterable[Record], home: Home, out: Path, suite: str = "fig6") -> Report:
    """Write index.html and figure6.png, .svg and .csv of one suite's records to the folder ``out``.

    Each file is replaced as a whole, so that a reader, or an interruption, never meets half of one. Without records the
    page shows what the paper prints and says that nothing was run.
    """
    chosen = [record for record in records if record.cell.suite == suite]
    summary = summarise(records_frame(chosen, home))
    figure = Figure6(summary, figure6_bars(home), home)
    table = short_table(summary)
    page = render(figure, summary, table, chosen, home)
    paths = ReportPaths(out / "index.html", out / "figure6.png", out / "figure6.svg", out / "figure6.csv")
    out.mkdir(parents=True, exist_ok=True)
    with style.theme():
        sheet = figure.figure()
        with _replacing(paths.png) as part:
            sheet.savefig(part, format="png", dpi=_DPI)
        with _replacing(paths.svg) as part:
            sheet.savefig(part, format="svg", metadata={"Date": None})
    with _replacing(paths.csv) as part:
        figure.table().to_csv(part, index=False)
    with _replacing(paths.page) as part:
        part.write_text(page, encoding="utf-8")
    return Report(paths, table)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path to write to beside ``path``, which takes its place if all went well and is removed if not."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
