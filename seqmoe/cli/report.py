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
    suite: Annotated[str, typer.Option(help="The suite whose records are reported.")] = "fig6",
    as_json: JsonFlag = False,
) -> None:
    """Turn a suite's records into the figure, its data and one HTML page, and print the short table."""
    from seqmoe.harness.store import latest, read_records, store_files
    from seqmoe.report.writer import write_report
    from seqmoe.spec.paths import find_home

    home = find_home()
    if results is not None and not results.is_dir():
        raise InputError(f"--results {results}: no such folder; give one that `seqmoe bench` has written to")
    records = [record for path in store_files(results or home.results) for record in latest(read_records(path))]
    written = write_report(records, home, folder or home.reports, suite)
    if as_json:
        print_json({name: str(getattr(written.paths, name)) for name in ("page", "png", "svg", "csv")})
    else:
        out.print(written.table.rich())
        out.print(f"\nPage: {written.paths.page}", soft_wrap=True, highlight=False)
