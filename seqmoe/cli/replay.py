"""`seqmoe replay`: hit rates of cache policies on a routing trace."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.progress import Progress
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, numbers, out, print_json
from seqmoe.cli.sources import SOURCE_HELP, traces_of
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.simulate.replay import ReplayRow

# Whose overlap ratio a link has that nobody gave: the paper's first machine.
_HARDWARE = "rtx4090"


@app.command()
def replay(
    traces: Annotated[str, typer.Option(metavar="SRC", help=SOURCE_HELP)],
    policies: Annotated[
        str, typer.Option(help="Comma-separated names; NAME+ORDER prefetches as well, for example lru+matroid.")
    ] = "lru,lfu,belady",
    residency: Annotated[str, typer.Option(help="Comma-separated shares of all experts.")] = "0.15,0.25,0.35,0.45",
    predictor: Annotated[
        Path | None, typer.Option(help="A file of `seqmoe predictor train`, for policies that use forecasts.")
    ] = None,
    fit: Annotated[
        str | None, typer.Option(metavar="SRC", help="Other traces of the model, for policies that are fitted.")
    ] = None,
    link: Annotated[
        float | None,
        typer.Option(
            "--link-experts-per-layer",
            help="Prefetches that the link moves while a layer computes; inf for any number. Default: an RTX 4090's.",
        ),
    ] = None,
    contract: Annotated[str, typer.Option(help="event, or sequential to compare with other papers.")] = "event",
    batch: Annotated[int, typer.Option(help="Requests that run together; an event needs the union.")] = 1,
    stagger: Annotated[int, typer.Option(help="Steps by which each request of a batch follows the one before.")] = 0,
    warm_up: Annotated[int, typer.Option(help="First decode steps of each request that do not count.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Replay a routing trace against cache policies and print hit rates."""
    from seqmoe.predictor.kinds import load_predictor
    from seqmoe.simulate.replay import ReplayOptions, replay_traces
    from seqmoe.simulate.rows import LEAST_BATCHES
    from seqmoe.spec.hardware import load_hardware
    from seqmoe.spec.paths import find_home

    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise InputError("--policies: names nothing; give for example lru,belady")
    residencies = list(dict.fromkeys(numbers(residency, "--residency")))
    if link is None:
        link = load_hardware(find_home(), _HARDWARE).emulated_overlap_ratio
    options = ReplayOptions((link,), contract, batch, stagger, warm_up)
    loaded = traces_of(traces)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("replaying", total=None)
        rows = replay_traces(
            loaded,
            names,
            residencies,
            options,
            predictor=None if predictor is None else load_predictor(predictor),
            fitted_on=None if fit is None else traces_of(fit),
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    if contract == "sequential":
        err.print("sequential contract: every access is an event; only for comparison with papers that count so")
    if as_json:
        shared = {"model": loaded.model, "contract": contract, "batch": batch, "stagger": stagger, "warm_up": warm_up}
        shared["link_experts_per_layer"] = None if math.isinf(link) else link
        print_json(shared | {"rows": [row.detail() for row in rows]})
        return
    prefetching = any(row.link != 0 for row in rows)
    title = f"{loaded.model}, {contract} contract, decode steps"
    if prefetching:
        title += f"; prefetching {'any number of' if math.isinf(link) else f'{link:.2f}'} experts per layer"
    out.print(title, highlight=False, soft_wrap=True)
    out.print(_table(rows, prefetching))
    about = "gap: from LRU (0%) to Belady (100%); loads"
    about += " on demand, prefetches sent and late, per token" if prefetching else " per token"
    if batch > 1:
        about += "; assigned: the hit rate where an expert counts once for each request that needs it"
    if rows[0].interval is None:
        about += f"; an interval needs {LEAST_BATCHES} sequences or batches, here are {len(rows[0].batches)}"
    out.print(about, highlight=False, soft_wrap=True)


def _table(rows: list[ReplayRow], prefetching: bool) -> Table:
    """At most 80 columns wide, names folded where need be: nobody reads half a number."""
    intervals = any(row.interval is not None for row in rows)
    together = any(row.assignment_rate is not None and row.assignment_rate != row.hit_rate for row in rows)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    headings = ["policy", "held", *([] if prefetching else ["slots"]), "hit rate", *(["95%"] if intervals else [])]
    headings += ["assigned"] if together else []
    headings += ["gap", "loads", *(["sent", "used", "late"] if prefetching else [])]
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        low, high = row.interval or (math.nan, math.nan)
        gap = "-" if row.gap_recovered is None else f"{row.gap_recovered:.0%}"
        values = [f"{row.residency:.0%}", *([] if prefetching else [str(row.slots)]), f"{row.hit_rate:.4f}"]
        values += [f"{low:.3f}-{high:.3f}"] if intervals else []
        values += [f"{row.assignment_rate:.4f}"] if together else []
        values += [gap, f"{row.loads_per_token:.1f}"]
        if prefetching:
            used = "-" if row.used_share is None else f"{row.used_share:.0%}"
            values += [f"{row.sent_per_token:.1f}", used, f"{row.late / max(row.tokens, 1):.2f}"]
        table.add_row(row.policy if len(row.policy) < 20 else row.policy.replace("+", "+\n"), *values)
    return table
