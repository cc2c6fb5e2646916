"""`seqmoe report`: records become figures and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, out, print_json
from seqmoe.spec.errors import InputError


@app.command()
def report(
    folder: Annotated[Path | None, typer.Option("--out", help="Folder to write; default: reports/.")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder of records; default: results/.")] = None,
    suite: Annotated[str | None, typer.Option(help="Report this suite alone; default: every figure.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Turn records into figures, their data and one HTML page, and print the short tables."""
    from seqmoe.harness.record import Record
    from seqmoe.harness.store import latest, read_records, store_files
    from seqmoe.harness.studies.record import ANY, StudyRecord
    from seqmoe.report.writer import write_report
    from seqmoe.spec.paths import find_home

    home = find_home()
    if results is not None and not results.is_dir():
        raise InputError(f"--results {results}: no such folder; give one that `seqmoe bench` has written to")
    records: list[Record | StudyRecord] = []
    for path in store_files(results or home.results):
        everything = read_records(path, ANY)
        records += latest(record for record in everything if isinstance(record, Record))
        records += [record for record in everything if isinstance(record, StudyRecord)]
    written = write_report(records, home, folder or home.reports, suite)
    if as_json:
        figures = {
            figure: {name: str(getattr(files, name)) for name in ("png", "svg", "csv")}
            for figure, files in written.figures.items()
        }
        # The figure that was asked for, else figure 6.
        first = figures["6"] if suite is None else next(iter(figures.values()))
        print_json({"page": str(written.page), **first, "figures": figures})
        return
    for part in written.parts:
        if part.drawn or suite is not None:
            out.print(part.section.label, style="bold")
            out.print(part.table)
        else:
            out.print(f"{part.section.label}: nothing was run yet", highlight=False)
    out.print(f"\nPage: {written.page}", soft_wrap=True, highlight=False)
