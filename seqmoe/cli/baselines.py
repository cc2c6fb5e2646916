"""`seqmoe baselines`: the opponents and their environments."""

from __future__ import annotations

from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, err, out, print_json


@app.command()
def baselines(
    install: Annotated[
        str | None, typer.Option(help="Make this baseline's environment, then run its self-test.")
    ] = None,
    profile: Annotated[str, typer.Option(help="quick or full: which requirements to install.")] = "quick",
    as_json: JsonFlag = False,
) -> None:
    """The opponents, and what each can do on this machine."""
    from seqmoe.harness.self_test import install_and_test, self_test
    from seqmoe.spec.baseline import find_baseline, load_baselines
    from seqmoe.spec.paths import find_home

    home = find_home()
    known = load_baselines(home.baselines)
    if install is None:
        outcomes = [self_test(baseline, home, run=False) for baseline in known.values()]
    else:
        chosen = find_baseline(known, install)

        def show(line: str) -> None:
            err.print(line, style="dim", markup=False, soft_wrap=True)

        outcomes = [install_and_test(chosen, home, profile, show)]
    for outcome in outcomes:
        (err if as_json else out).print(outcome.line, soft_wrap=True, highlight=False, markup=False)
    if as_json:
        print_json({"baselines": [outcome.as_dict() for outcome in outcomes]})
    if install is not None and not all(outcome.status.ok for outcome in outcomes):
        raise typer.Exit(1)
