"""From records to files: the figure, its data, and the page."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
    paths = ReportPaths(out / "index.html", out / "figure6.png", out / "figure6.svg", out / "figure6.csv")
    out.mkdir(parents=True, exist_ok=True)
    with style.theme():
        sheet = figure.figure()
        for path in (paths.png, paths.svg):
            part = _part(path)
            metadata = {"Date": None} if path.suffix == ".svg" else None
            sheet.savefig(part, format=path.suffix[1:], dpi=_DPI, metadata=metadata)
            os.replace(part, path)
    _replace(paths.csv, figure.table().to_csv(index=False))
    _replace(paths.page, render(figure, summary, table, chosen, home))
    return Report(paths, table)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _replace(path: Path, text: str) -> None:
    part = _part(path)
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
