"""`seqmoe table1`: the paper's table of models, generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, out, print_json

_Out = Annotated[Path | None, typer.Option("--out", help="Folder for table1.csv; default: reports/.")]


@app.command()
def table1(folder: _Out = None, as_json: JsonFlag = False) -> None:
    """Table 1 of the paper: parameters and experts by Transformers' classes, exit code 1 where the print differs."""
    from seqmoe.report.table1 import frame, rows_of
    from seqmoe.spec.files import replacing
    from seqmoe.spec.paths import find_home

    home = find_home()
    rows = rows_of(home)
    data, path = frame(rows), (folder or home.reports) / "table1.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        data.to_csv(partial, index=False)
    differences = [f"{row.model.title}: {text}" for row in rows for text in row.differences]
    if as_json:
        print_json({"rows": json.loads(data.to_json(orient="records")), "differences": differences, "csv": str(path)})
    else:
        table = Table("Model", *rows[0].cells, "Printed", box=box.SIMPLE_HEAD)
        for row in rows:
            mine, theirs = zip(*row.cells.values(), strict=True)
            table.add_row(row.model.title, *mine, "the same" if mine == theirs else ", ".join(theirs))
        out.print(table)
        out.print(f"Data: {path}", soft_wrap=True, highlight=False)
    for text in differences:
        err.print(text, highlight=False)
    if differences:
        raise typer.Exit(1)
