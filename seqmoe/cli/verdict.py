"""`seqmoe verdict`: every claim of the paper beside what was observed here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, err, out, print_json

_Results = Annotated[
    list[Path] | None,
    typer.Option("--results", help="Folder of records, may be given twice; default: results/ and results/published/."),
]
_Gate = Annotated[bool, typer.Option("--gate", help="Exit with 1 if a claim is refuted or not reproduced.")]


@app.command()
def verdict(results: _Results = None, gate: _Gate = False, as_json: JsonFlag = False) -> None:
    """Set every claim of the paper beside what the records here say, with one of five verdicts for each."""
    from seqmoe.harness.claims.sources import read_evidence
    from seqmoe.harness.claims.verdict import NOT_REPRODUCED, REFUTED, counts, judge
    from seqmoe.report.verdict_table import as_plain, origins, terminal_table
    from seqmoe.spec.paths import find_home

    home = find_home()
    judged = judge(home, read_evidence(home, results))
    summary = counts(judged)
    if as_json:
        print_json({"counts": summary, "claims": [as_plain(one) for one in judged]})
    else:
        out.print(terminal_table(judged))
        by = origins(judged)
        for name, number in summary.items():
            out.print(f"{number:3} {name}" + (f": {by[name]}" if name in by else ""), highlight=False)
    failed = summary[REFUTED] + summary[NOT_REPRODUCED]
    if gate and failed:
        err.print(f"{failed} claims are refuted or not reproduced", highlight=False)
        raise typer.Exit(1)
