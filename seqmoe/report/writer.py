"""From records to files: the figure, its data, and the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seqmoe.harness.conditions import newest_only
from seqmoe.harness.record import Record
from seqmoe.report import style
from seqmoe.report.figure6 import Figure6
from seqmoe.report.frame import records_frame
from seqmoe.report.pace import pace
from seqmoe.report.page import render
from seqmoe.report.paper import figure6_bars
from seqmoe.report.summary import summarise
from seqmoe.report.table import ShortTable, short_table
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.files import replacing
from seqmoe.spec.paths import Home

FIGURE_6 = "fig6"
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


def write_report(records: Iterable[Record], home: Home, out: Path, suite: str = FIGURE_6) -> Report:
    """Write index.html and figure6.png, .svg and .csv of one suite's records to the folder ``out``.

    Each file is replaced as a whole, so that a reader, or an interruption, never meets half of one. Without records the
    page shows what the paper prints and says that nothing was run. Records of earlier weights are left out and counted.
    A ``suite`` that is neither declared nor recorded is an `InputError`.
    """
    recorded = list(records)
    known = {FIGURE_6} | {path.stem for path in home.suites.glob("*.toml")} | {record.cell.suite for record in recorded}
    if suite not in known:
        raise InputError(
            f"--suite {suite}: no record is of it, and suites/ does not declare it; {nearest(suite, known)}"
        )
    comparable = newest_only(record for record in recorded if record.cell.suite == suite)
    chosen = list(comparable.records)
    frame = records_frame(chosen, home)
    summary = summarise(frame)
    figure = Figure6(summary, figure6_bars(home), home)
    table = short_table(summary, [*pace(frame), *comparable.remarks])
    page = render(figure, summary, table, chosen, home)
    paths = ReportPaths(out / "index.html", out / "figure6.png", out / "figure6.svg", out / "figure6.csv")
    out.mkdir(parents=True, exist_ok=True)
    with style.theme():
        sheet = figure.figure()
        with replacing(paths.png) as part:
            sheet.savefig(part, format="png", dpi=_DPI)
        with replacing(paths.svg) as part:
            sheet.savefig(part, format="svg", metadata={"Date": None})
    with replacing(paths.csv) as part:
        figure.table().to_csv(part, index=False)
    with replacing(paths.page) as part:
        part.write_text(page, encoding="utf-8")
    return Report(paths, table)
