"""`seqmoe table2`: the paper's example of prefetch scheduling, recomputed."""

from __future__ import annotations

from dataclasses import asdict

from rich import box
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, out, print_json


@app.command()
def table2(as_json: JsonFlag = False) -> None:
    """Table 2 of the paper: which of six prefetch tasks every order sends."""
    from seqmoe.simulate.table2 import CANDIDATES, CAPACITIES, CONFIDENCES, DEADLINES, PRINTED
    from seqmoe.simulate.table2 import table2 as selections

    rows = selections()
    if as_json:
        print_json({"rows": [asdict(row) | {"printed": PRINTED.get(row.order)} for row in rows]})
        return
    given = Table("Candidate", *CANDIDATES, box=box.SIMPLE_HEAD)
    given.add_row("Deadline", *map(str, DEADLINES))
    given.add_row("Confidence", *(f"{value:.2f}" for value in CONFIDENCES))
    out.print(given)
    out.print(f"Transfers that fit before deadlines 1, 2, 3: {', '.join(map(str, CAPACITIES))}", highlight=False)
    found = Table("Order", "Sent", "Confidence", "Printed", box=box.SIMPLE_HEAD)
    for row in rows:
        found.add_row(row.title, row.chosen, f"{row.confidence:.2f}", PRINTED.get(row.order, "–"))
    out.print(found)
