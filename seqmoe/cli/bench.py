"""`seqmoe bench`: a suite's cells become records."""

from __future__ import annotations

from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, err, out, print_json


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help="A name of suites/, or a TOML file.")],
    profile: Annotated[str, typer.Option(help="quick, or full for the paper's size.")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="Choose cells, for example system=seqmoe; repeatable.")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeats per cell; default: the profile's.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the prompt choice.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads of every system.")] = 1,
    resume: Annotated[bool, typer.Option(help="Keep what earlier runs finished.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and start nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a suite's cells into records; interrupt it and run it again at will."""
    from seqmoe.harness.failures import failure_line
    from seqmoe.harness.progress import console_progress
    from seqmoe.harness.runner import run_suite
    from seqmoe.spec.paths import find_home

    result = run_suite(
        find_home(),
        suite,
        profile=profile,
        only=only or [],
        repeats=repeat,
        seed=seed,
        threads=threads,
        resume=resume,
        dry_run=dry_run,
        progress=console_progress(),
    )
    if dry_run:
        for cell in result.cells:
            out.print(f"{cell.key}  {cell.label}, batch {cell.batch}, {cell.dataset}", highlight=False)
    waiting = f", {len(result.plan.runs)} to run" if dry_run else ""
    err.print(f"{len(result.cells)} cells, {result.written} new records{waiting}: {result.path}", soft_wrap=True)
    if result.failed:
        line = failure_line(result.failed, result.tried, suite, profile, ["--seed", str(seed)] if seed else [])
        err.print(line, soft_wrap=True, highlight=False, markup=False)
    if as_json:
        counts = {"cells": len(result.cells), "written": result.written, "records": len(result.records)}
        counts |= {"failed": len(result.failed), "to_run": len(result.plan.runs) if dry_run else 0}
        print_json(counts | {"failed_cells": [cell.key for cell in result.failed], "path": str(result.path)})
