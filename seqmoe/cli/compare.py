"""`seqmoe compare`: the same cells of two folders, hosts, revisions or systems beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, counted, err, out, print_json

if TYPE_CHECKING:
    from seqmoe.harness.comparing.comparison import Compared
    from seqmoe.harness.comparing.judging import Judged
    from seqmoe.harness.statistics import Summary

_Side = "A result folder or JSONL file, a host, a system, or a git revision that records name."
_Results = Annotated[
    list[Path] | None,
    typer.Option("--results", help="Folder of records to look names up in; default: results/ and results/published/."),
]


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=f"What was. {_Side}")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is, likewise; verdicts speak of B beside A.")],
    metric: Annotated[
        str, typer.Option(help="decode_tok_s, steady_decode_tok_s, cold_decode_tok_s, ttft_s or itl_s.")
    ] = "decode_tok_s",
    results: _Results = None,
    as_json: JsonFlag = False,
) -> None:
    """Say of every cell whether B is faster or slower than A; exit 1 if one is slower than its suite allows."""
    from seqmoe.harness.comparing.comparison import compare_sides
    from seqmoe.spec.paths import find_home

    found = compare_sides(find_home(), a, b, metric, results)
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
    if found.regressions:
        err.print(f"{counted(found.regressions, 'cell')} slower than allowed, or failed", highlight=False)
        raise typer.Exit(1)


def _print(found: Compared) -> None:
    suites: dict[str, list[Judged]] = {}
    for cell in found.cells:
        suites.setdefault(cell.pair.a[0].cell.suite, []).append(cell)
    for suite, cells in suites.items():
        out.print(_table(found, suite, cells))
    told = ", ".join(f"{number} {verdict}" for verdict, number in found.counts.items() if number)
    out.print(f"{counted(len(found.cells), 'cell')}: {told}", highlight=False)
    for remark in found.remarks:
        out.print(f"  {remark}", highlight=False, markup=False)


def _table(found: Compared, suite: str, cells: list[Judged]) -> Table:
    """Medians, the ratio of speeds with its interval, and the verdict."""
    table = Table(box=None, title=f"{suite}: {found.metric.name} ({found.metric.unit})", title_justify="left")
    table.add_column("cell", overflow="fold")
    for heading in ("A", "B", "speed B / A", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for cell in cells:
        p = "" if cell.p_value is None else f"{cell.p_value:.2g}"
        verdict = f"{cell.verdict} ({cell.note})" if cell.note else cell.verdict
        medians = ["" if side is None else f"{side.median:.4g}" for side in (cell.a, cell.b)]
        table.add_row(cell.pair.label, *medians, _ratio(cell.ratio), p, verdict, style="red" if cell.regression else "")
    return table


def _ratio(ratio: Summary | None) -> str:
    """With its interval; that of one value would say nothing."""
    if ratio is None:
        return ""
    interval = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.count > 1 else ""
    return f"{ratio.median:.2f}{interval}"
