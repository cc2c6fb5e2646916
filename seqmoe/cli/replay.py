"""`seqmoe replay`: hit rates of cache policies on a routing trace."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, numbers, out, print_json
from seqmoe.cli.sources import SOURCE_HELP, traces_of


@app.command()
def replay(
    traces: Annotated[str, typer.Option(metavar="SRC", help=SOURCE_HELP)],
    policies: Annotated[str, typer.Option(help="Comma-separated: lru, lfu, belady.")] = "lru,belady",
    residency: Annotated[str, typer.Option(help="Comma-separated shares of all experts.")] = "0.15,0.25,0.35,0.45",
    contract: Annotated[str, typer.Option(help="event, or sequential to compare with other papers.")] = "event",
    as_json: JsonFlag = False,
) -> None:
    """Replay a routing trace against cache policies and print hit rates."""
    from seqmoe.simulate.replay import replay_traces

    loaded = traces_of(traces)
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    rows = replay_traces(loaded, names, numbers(residency, "--residency"), contract)
    if as_json:
        print_json({"model": loaded.model, "contract": contract, "rows": [row.as_dict() for row in rows]})
        return
    table = Table(title=f"{loaded.model}, {contract} contract, decode steps")
    for heading in ("policy", "residency", "slots", "hit rate", "LRU-Belady gap", "loads / token"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for row in rows:
        gap = "-" if row.gap_recovered is None else f"{row.gap_recovered:.0%}"
        values = (f"{row.residency:.0%}", str(row.slots), f"{row.hit_rate:.4f}", gap, f"{row.loads_per_token:.1f}")
        table.add_row(row.policy, *values)
    out.print(table)
