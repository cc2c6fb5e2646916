"""`seqmoe baselines`: the opponents and their environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, out, print_json

if TYPE_CHECKING:
    from seqmoe.harness.overview import Overview
    from seqmoe.spec.baseline import Baseline
    from seqmoe.spec.paths import Home


@app.command()
def baselines(
    install: Annotated[
        str | None, typer.Option(help="Make this baseline's environment, then run its self-test.")
    ] = None,
    profile: Annotated[str, typer.Option(help="quick or full: which requirements to install.")] = "quick",
    as_json: JsonFlag = False,
) -> None:
    """The opponents, and what each can do on this machine."""
    from seqmoe.harness.self_test import install_and_test
    from seqmoe.spec.baseline import find_baseline, load_baselines
    from seqmoe.spec.paths import find_home

    home = find_home()
    known = load_baselines(home.baselines)
    if install is None:
        _list(known, home, as_json)
        return

    def show(line: str) -> None:
        err.print(line, style="dim", markup=False, soft_wrap=True)

    outcome = install_and_test(find_baseline(known, install), home, profile, show)
    (err if as_json else out).print(outcome.line, soft_wrap=True, highlight=False, markup=False)
    if as_json:
        print_json({"baselines": [outcome.as_dict()]})
    if not outcome.works:
        raise typer.Exit(1)


def _list(known: dict[str, Baseline], home: Home, as_json: bool) -> None:
    from seqmoe.harness.overview import overview
    from seqmoe.harness.self_test import self_test

    entries = []
    for baseline in known.values():
        found = self_test(baseline, home, run=False)
        seen = overview(baseline, home, found)
        entries.append(found.as_dict() | seen.as_dict())
        if not as_json:
            _print(seen)
    if as_json:
        print_json({"baselines": entries})


def _print(seen: Overview) -> None:
    """A block of lines for one baseline, the first word of each saying what it tells."""
    out.print(f"[bold]{escape(seen.name)}[/bold]  {escape(seen.version)}", highlight=False)
    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=11)
    rows.add_column(overflow="fold")
    for label, text in (("  here", seen.state), ("  models", seen.models), ("  residency", seen.residency),
                        ("  exposes", seen.exposes)):  # fmt: skip
        rows.add_row(label, escape(text))
    out.print(rows, highlight=False)
