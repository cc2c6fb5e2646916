"""The `seqmoe` command: parses, calls, prints. No logic."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from seqmoe.spec.errors import InputError

_HELP = "SeqMoE: predictive offloading of Mixture-of-Experts models, and the harness that tests it beside its rivals."
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=_HELP)
reference_app = typer.Typer(no_args_is_help=True, help="The small MoE model that ships with the package.")
app.add_typer(reference_app, name="reference")
out, err = Console(), Console(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object as the last line of stdout.")]


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option}: {text!r} is not a comma-separated list of numbers, for example 0.15,0.45"
        ) from None


def _print_json(value: Any) -> None:
    print(json.dumps(value))


@reference_app.command("info")
def reference_info(as_json: JsonFlag = False) -> None:
    """Show the model card: data, recipe, perplexity, routing."""
    from seqmoe.reference.release import read_card

    card = read_card()
    if as_json:
        _print_json(card)
    else:
        out.print_json(data=card)


@reference_app.command("train")
def reference_train(
    folder: Annotated[Path, typer.Option("--out", help="Folder of the finished model.")],
    work: Annotated[Path, typer.Option(help="Folder for progress; a second call continues from it.")] = Path(
        "reference-training"
    ),
    tokens: Annotated[int | None, typer.Option(help="Training budget in tokens; default: the recipe's.")] = None,
    seed: int = 0,
    as_json: JsonFlag = False,
) -> None:
    """Train the reference model from scratch by its recipe, on one CPU thread (about two hours)."""
    from seqmoe.reference.recipe import Recipe
    from seqmoe.reference.release import release
    from seqmoe.reference.training import train

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        recipe = Recipe(seed=seed) if tokens is None else Recipe(seed=seed, tokens=tokens)
    except ValueError as error:
        raise InputError(f"--tokens: {error}") from None
    train(recipe, work)
    card = release(recipe, work, folder)
    if as_json:
        _print_json(card)
    else:
        out.print(f"[bold]{folder}[/]: held-out perplexity {card['held_out_perplexity']['model']:.1f}")


@reference_app.command("export")
def reference_export(
    folder: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    form: Annotated[str, typer.Option("--format", help="hf or gguf")] = "hf",
) -> None:
    """Write the reference model as a checkpoint for others."""
    from seqmoe.reference.export import export
    from seqmoe.reference.release import CHECKPOINT

    out.print(str(export(CHECKPOINT, form, folder)))


@app.command()
def replay(
    traces: Annotated[Path, typer.Option(help="A trace file of any known format.")],
    policies: Annotated[str, typer.Option(help="Comma-separated: lru, lfu, belady.")] = "lru,belady",
    residency: Annotated[str, typer.Option(help="Comma-separated shares of all experts.")] = "0.15,0.25,0.35,0.45",
    contract: Annotated[str, typer.Option(help="event, or sequential to compare with other papers.")] = "event",
    as_json: JsonFlag = False,
) -> None:
    """Replay a routing trace against cache policies and print hit rates."""
    from seqmoe.simulate.replay import replay_traces
    from seqmoe.traces.importers import import_traces

    loaded = import_traces(traces)
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    rows = replay_traces(loaded, names, _numbers(residency, "--residency"), contract)
    if as_json:
        _print_json({"model": loaded.model, "contract": contract, "rows": [row.as_dict() for row in rows]})
        return
    table = Table(title=f"{loaded.model}, {contract} contract, decode steps")
    for heading in ("policy", "residency", "slots", "hit rate", "LRU-Belady gap", "loads / token"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for row in rows:
        gap = "-" if row.gap_recovered is None else f"{row.gap_recovered:.0%}"
        values = (f"{row.residency:.0%}", str(row.slots), f"{row.hit_rate:.4f}", gap, f"{row.loads_per_token:.1f}")
        table.add_row(row.policy, *values)
    out.print(table)


@app.command()
def generate(
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    model: Annotated[
        str, typer.Option(help="reference, a name of suites/models, a folder, or a hub id.")
    ] = "reference",
    residency: Annotated[float, typer.Option(help="Share of all experts that the device holds.")] = 0.45,
    system: Annotated[str, typer.Option(help="full, naive, lru or seqmoe.")] = "seqmoe",
    emulate: Annotated[str | None, typer.Option(help="Throttle the link as on this GPU, for example rtx4090.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens to generate.")] = 64,
    predictor: Annotated[Path | None, typer.Option(help="Predictor file, for a model that brings none.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the model.", min=1)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Continue a prompt greedily through one system, and say what it cost."""
    from seqmoe.runtime.generate import generate as run
    from seqmoe.spec import system as systems
    from seqmoe.spec.choice import choose_model
    from seqmoe.spec.hardware import load_hardware
    from seqmoe.spec.paths import find_home

    home = find_home()
    chosen = choose_model(home, model)
    result = run(
        chosen.location,
        prompt,
        systems.system(system),
        residency,
        tokens,
        load_hardware(home, emulate).emulated_overlap_ratio if emulate is not None else None,
        predictor or chosen.predictor,
        threads,
    )
    if as_json:
        _print_json(result.as_dict())
        return
    out.print(result.text, markup=False, highlight=False)
    rate = "none" if result.hit_rate is None else f"{result.hit_rate:.1%}"
    err.print(
        f"{result.system} at {result.residency:.0%}, {result.lane}: {result.decode_tok_s:.1f} tok/s, "
        f"TTFT {result.ttft_s:.3f} s, hit rate {rate}, sha256 {result.sha256[:12]}",
        soft_wrap=True,
    )


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
        _print_json(counts | {"failed_cells": [cell.key for cell in result.failed], "path": str(result.path)})


@app.command()
def report(
    folder: Annotated[Path | None, typer.Option("--out", help="Folder to write; default: reports/.")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder of records; default: results/.")] = None,
    suite: Annotated[str, typer.Option(help="The suite whose records are reported.")] = "fig6",
    as_json: JsonFlag = False,
) -> None:
    """Turn a suite's records into the figure, its data and one HTML page, and print the short table."""
    from seqmoe.harness.store import latest, read_records, store_files
    from seqmoe.report.writer import write_report
    from seqmoe.spec.paths import find_home

    home = find_home()
    if results is not None and not results.is_dir():
        raise InputError(f"--results {results}: no such folder; give one that `seqmoe bench` has written to")
    records = [record for path in store_files(results or home.results) for record in latest(read_records(path))]
    written = write_report(records, home, folder or home.reports, suite)
    if as_json:
        _print_json({name: str(getattr(written.paths, name)) for name in ("page", "png", "svg", "csv")})
    else:
        out.print(written.table.rich())
        out.print(f"\nPage: {written.paths.page}", soft_wrap=True, highlight=False)


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
        _print_json({"baselines": [outcome.as_dict() for outcome in outcomes]})
    if install is not None and not all(outcome.status.ok for outcome in outcomes):
        raise typer.Exit(1)
