"""`seqmoe report`: records become figures and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, out, print_json

_Results = Annotated[
    list[Path] | None,
    typer.Option("--results", help="Folder of records; may be given several times; default: results/."),
]
_Png = Annotated[
    str | None,
    typer.Option(
        "--png", help="Figures to write as PNG too, by name and comma (figure6,figure8), or none; default: all."
    ),
]


@app.command()
def report(
    folder: Annotated[Path | None, typer.Option("--out", help="Folder to write; default: reports/.")] = None,
    results: _Results = None,
    suite: Annotated[str | None, typer.Option(help="Report this suite alone; default: every figure.")] = None,
    png: _Png = None,
    as_json: JsonFlag = False,
) -> None:
    """Turn records into a site of pages, with figures and their data, and print the short tables."""
    from seqmoe.report.site.history import read_histories
    from seqmoe.report.sources import read_results, require_figures, require_folders, require_room
    from seqmoe.report.writer import write_report
    from seqmoe.spec.paths import find_home

    home = find_home()
    pictures = None if png is None else [name for name in png.split(",") if name and name != "none"]
    folders, into = results or [home.results], folder or home.reports
    require_folders(results or [])
    require_figures(pictures or [])
    require_room(into)
    records = read_results(folders)
    written = write_report(records, home, into, suite, pictures, read_histories(folders) if suite is None else [])
    if as_json:
        figures = {
            figure: {name: str(path) for name in ("png", "svg", "csv") if (path := getattr(files, name))}
            for figure, files in written.figures.items()
        }
        # The figure that was asked for, else figure 6.
        first = figures["6"] if suite is None else next(iter(figures.values()))
        print_json({"page": str(written.page), **first, "figures": figures})
        return
    for part in written.parts:
        if part.table is None:
            continue
        if part.drawn or suite is not None:
            out.print(part.section.label, style="bold")
            out.print(part.table)
        else:
            out.print(f"{part.section.label}: nothing was run yet", highlight=False)
    out.print(f"\nPage: {written.page}", soft_wrap=True, highlight=False)
