"""`seqmoe bench`: a suite's cells become records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmoe.cli.base import JsonFlag, app, counted, err, in_words, out, print_json
from seqmoe.cli.cluster_options import cluster_arguments, cluster_options
from seqmoe.cli.random_options import ConfigOption, LayersOption, WeightsOption, random_source
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.harness.runner import SweepResult
    from seqmoe.harness.studies.kinds import Study
    from seqmoe.harness.studies.runner import StudyResult
    from seqmoe.spec.paths import Home


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help="A name of suites/, or a TOML file.")],
    profile: Annotated[str, typer.Option(help="quick, or full for the paper's size.")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="Choose cells, for example system=seqmoe; repeatable.")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeats per cell; default: the profile's.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the prompt choice, or of training.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads of every system, or of every cell of a study.")] = 1,
    traces: Annotated[
        str | None,
        typer.Option(help="Traces: of a study a file, a store or an hf:// address; to replay a file or its folder."),
    ] = None,
    predictor: Annotated[
        Path | None, typer.Option(help="Predictor of replayed routing, trained on the traces' training part.")
    ] = None,
    config: ConfigOption = None,
    weights: WeightsOption = None,
    routing: Annotated[
        str | None, typer.Option(metavar="replay:SRC", help="With --config: the traces to replay, or synthetic.")
    ] = None,
    layers: LayersOption = 0,
    device: Annotated[
        str, typer.Option(help="Where our own systems' measured cells run: cpu, or cuda for the first GPU.")
    ] = "cpu",
    executor: Annotated[
        str, typer.Option(help="local: this machine, or ray: the nodes of a Ray cluster, see docs/sweeps.md.")
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="With --executor ray: the head; default: RAY_ADDRESS.")
    ] = None,
    ray_env: Annotated[
        Path | None, typer.Option(help="With --executor ray: a TOML file, the runtime environment of the nodes.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="With --executor ray: the resource that measured cells ask of a node.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Keep what earlier runs finished.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and start nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a suite's cells into records; interrupt it and run it again at will."""
    from seqmoe.harness.gpu.needs import check_device
    from seqmoe.harness.progress import console_progress
    from seqmoe.harness.random_cells import RandomConfig
    from seqmoe.harness.runner import run_suite
    from seqmoe.harness.studies.kinds import find_study
    from seqmoe.spec.paths import find_home

    home = find_home()
    study = find_study(home, suite)
    cluster = cluster_options(executor, ray_address, ray_env, hardware)
    shared: dict[str, Any] = {"profile": profile, "only": only or [], "seed": seed, "threads": threads}
    shared |= {"resume": resume, "dry_run": dry_run}
    source = random_source(config, weights, routing, layers)
    if config is None and routing is not None:
        raise InputError(
            f"--routing {routing}: belongs to --config NAME; traces of a suite's own are given as --traces"
        )
    again = ["--seed", str(seed)] if seed else []
    if study is not None:
        if repeat is not None:
            raise InputError(
                f"--repeat {repeat}: the cells of study {study.suite.name!r} are computed once; use --seed"
            )
        if cluster is not None:
            raise InputError(f"--executor ray: study {study.suite.name!r} runs on this machine; leave it out")
        if config is not None:
            raise InputError(f"--config {config}: study {study.suite.name!r} runs no model")
        if device != "cpu":
            raise InputError(f"--device {device}: study {study.suite.name!r} runs no system; leave it out")
        if predictor is not None:
            raise InputError(f"--predictor {predictor}: study {study.suite.name!r} makes its own")
        again += [] if traces is None else ["--traces", traces]
        _print(_run_study(home, study, traces, shared), suite, profile, again, dry_run, as_json)
        return
    for option, value in (("--traces", traces), ("--predictor", predictor)):
        again += [] if value is None else [option, str(value)]
    if config is not None and source is not None:
        if traces is not None:
            raise InputError(f"--traces {traces}: --routing replay:{source} names the traces already")
        shared["random"] = RandomConfig(config, source, layers)
        again += ["--config", config, "--weights", "random", "--routing", f"replay:{source}"]
        again += ["--layers", str(layers)] if layers else []
    if cluster is None:
        check_device(device)
    else:
        again += cluster_arguments(cluster)
    again += ["--device", device] if device != "cpu" else []
    shared |= {"traces": traces, "predictor": predictor, "progress": console_progress(), "cluster": cluster}
    shared |= {"device": device}
    result = run_suite(home, suite, repeats=repeat, **shared)
    _print(result, suite, profile, again, dry_run, as_json)


def _run_study(home: Home, study: Study, traces: str | None, shared: dict[str, Any]) -> StudyResult:
    from seqmoe.harness.studies.progress import console_progress
    from seqmoe.harness.studies.runner import run_study

    return run_study(home, study, traces=traces, progress=console_progress(), **shared)


def _print(
    result: SweepResult | StudyResult, suite: str, profile: str, again: list[str], dry_run: bool, as_json: bool
) -> None:
    from seqmoe.harness.failures import failure_line, obstacle_lines

    to_run = result.to_run
    if dry_run:
        for cell in result.cells:
            out.print(f"{cell.key}  {cell.detail}{_cost(result, cell.key)}", highlight=False, soft_wrap=True)
    waiting = f", {len(to_run)} to run{_total(result)}" if dry_run else ""
    told = f"{counted(len(result.cells), 'cell')}, {counted(result.written, 'new record')}{waiting}"
    err.print(f"{told}: {result.path}", soft_wrap=True)
    for line in obstacle_lines(record.status for record in result.records):
        err.print(line, soft_wrap=True, highlight=False, markup=False)
    if result.failed:
        line = failure_line(result.failed, result.tried, suite, profile, again)
        err.print(line, soft_wrap=True, highlight=False, markup=False)
    if as_json:
        counts = {"cells": len(result.cells), "written": result.written, "records": len(result.records)}
        counts |= {"failed": len(result.failed), "to_run": len(to_run) if dry_run else 0}
        counts |= _estimated(result)
        print_json(counts | {"failed_cells": [cell.key for cell in result.failed], "path": str(result.path)})


def _cost(result: SweepResult | StudyResult, key: str) -> str:
    """What one run of a cell of a sweep takes, empty where none is to be run."""
    from seqmoe.harness.estimates import SweepEstimate
    from seqmoe.spec.duration import duration

    estimate = result.estimate
    if not isinstance(estimate, SweepEstimate) or key not in estimate.cells:
        return ""
    cell = estimate.cells[key]
    memory = f", at least {in_words(cell.memory)} of memory" if cell.memory else ""
    about = f"about {duration(cell.seconds)}, by {cell.basis}" if cell.seconds is not None else "time unknown"
    return f": {about}{memory}"


def _total(result: SweepResult | StudyResult) -> str:
    """Time, memory and disk of all that is to be run."""
    from seqmoe.harness.estimates import SweepEstimate
    from seqmoe.spec.duration import duration

    estimate = result.estimate
    if estimate is None or not result.to_run:
        return ""
    sweep = isinstance(estimate, SweepEstimate)
    seconds = estimate.seconds if isinstance(estimate, SweepEstimate) else getattr(result, "seconds", 0.0)
    lacking = f" and {counted(estimate.unknown, 'run')} of unknown time" if sweep and estimate.unknown else ""
    written = f"{in_words(estimate.disk)} of disk"
    if not sweep and estimate.unknown:
        written += f" and {counted(estimate.unknown, 'cell')} of unknown size"
    memory = f"at least {in_words(estimate.memory)} of memory, " if estimate.memory else ""
    return f" in about {duration(seconds)}{lacking}, {memory}{written}"


def _estimated(result: SweepResult | StudyResult) -> dict[str, Any]:
    """The same as numbers."""
    from seqmoe.harness.estimates import SweepEstimate

    estimate = result.estimate
    if estimate is None:
        return {}
    seconds = estimate.seconds if isinstance(estimate, SweepEstimate) else getattr(result, "seconds", 0.0)
    plain: dict[str, Any] = {"seconds": round(seconds), "memory_bytes": estimate.memory, "disk_bytes": estimate.disk}
    plain["unknown"] = estimate.unknown
    return plain
