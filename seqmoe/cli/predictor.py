"""`seqmoe predictor`: make a predictor from traces, and judge one on others."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, out, print_json
from seqmoe.cli.sources import SOURCE_HELP, traces_of
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.predictor.summary import Summary
    from seqmoe.predictor.training import Progress

predictor_app = typer.Typer(no_args_is_help=True, help="Predictors of expert activations: train and evaluate.")
app.add_typer(predictor_app, name="predictor")

Traces = Annotated[str, typer.Option(metavar="SRC", help=SOURCE_HELP)]
_MINUTES = 10.0
_EVERY_SECONDS = 15.0


@predictor_app.command("train")
def predictor_train(
    kind: Annotated[str, typer.Option(help="mamba2, transformer, first_order, previous, popularity or early_router.")],
    traces: Traces,
    path: Annotated[Path, typer.Option("--out", help="The predictor's file.")],
    minutes: Annotated[
        float | None, typer.Option(help=f"Budget of a kind that is trained; default {_MINUTES:g}.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the weights, the order and the validation sequences.")] = 0,
    work: Annotated[
        Path | None, typer.Option(help="Folder where a training keeps its state, to resume from if interrupted.")
    ] = None,
    predictors: Annotated[int | None, typer.Option(help="How many networks share the layers; default: two.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of each network; default: by their number.")] = None,
    score_with: Annotated[
        Path | None,
        typer.Option(help="With popularity: a predictor whose forecasts the learned retention score is fitted to."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a predictor from all of SRC; split off what it shall be judged on before."""
    from seqmoe.predictor.kinds import TRAINED, check_kind

    check_kind(kind)
    if minutes is not None and not 0 < minutes < math.inf:
        raise InputError(f"--minutes {minutes:g}: must be positive and finite")
    _check_target(path)
    if score_with is not None:
        if kind != "popularity":
            raise InputError(f"--score-with: the score lies in the file of kind popularity, not {kind}")
        _make_profile(path, traces, score_with, as_json)
        return
    sizes = {name: value for name, value in (("ranges", predictors), ("hidden", hidden)) if value is not None}
    if kind not in TRAINED and (minutes is not None or work is not None or sizes):
        unread = "--minutes, --work, --predictors and --hidden"
        err.print(f"{kind} only counts: {unread} change nothing", highlight=False, soft_wrap=True)
    from seqmoe.predictor.making import make_predictor

    budget = (minutes or _MINUTES) if kind in TRAINED else None
    predictor, record = make_predictor(
        kind, traces_of(traces), minutes=budget, seed=seed, options=sizes, work=work, progress=_training_reporter()
    )
    predictor.save(path, record)
    if as_json:
        print_json({"kind": kind, "path": str(path), "bytes": path.stat().st_size, "training": record})
        return
    out.print(
        f"{path}: {kind}, {path.stat().st_size:,} bytes, made from {record['requests']:,} sequences of "
        f"{record['model']} ({record['trace_tokens']:,} tokens) in {record['seconds']:.0f} s",
        highlight=False,
        soft_wrap=True,
    )


def _make_profile(path: Path, source: str, score_with: Path, as_json: bool) -> None:
    """Popularity, and the learned score beside it."""
    from seqmoe.predictor.kinds import load_predictor
    from seqmoe.runtime.profile import make_profile, write_profile

    traces, predictor = traces_of(source), load_predictor(score_with)
    if (predictor.layers, predictor.experts) != (traces.layers, traces.experts):
        raise InputError(
            f"--score-with {score_with}: made for {predictor.layers} layers of {predictor.experts} experts, but the "
            f"traces have {traces.layers} of {traces.experts}"
        )
    record = {"model": traces.model, "requests": len(traces.requests), "score_with": score_with.name}
    write_profile(path, make_profile(traces, predictor), traces.top_k, record)
    if as_json:
        print_json({"kind": "popularity", "path": str(path), "bytes": path.stat().st_size, "training": record})
        return
    out.print(f"{path}: popularity and learned score, from {record['requests']:,} sequences", highlight=False)


@predictor_app.command("eval")
def predictor_eval(
    predictor: Annotated[Path, typer.Option(help="A file that `seqmoe predictor train` wrote.")],
    traces: Traces,
    stride: Annotated[int, typer.Option(help="Forecast after every such step only.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Recall one step and eight steps ahead, on misses, and calibration, on traces it was not made from."""
    from seqmoe.predictor.summary import evaluate_file

    if stride < 1:
        raise InputError(f"--stride {stride}: must be at least 1")
    summary = evaluate_file(predictor, traces_of(traces), stride, _say_evaluation)
    if summary.seen_in_training:
        err.print("[yellow]warning[/]: these are the traces that the predictor was made from", highlight=False)
    if as_json:
        print_json(summary.as_dict())
    else:
        _print(summary)


# What the table calls what the JSON names.
_TITLES = {"long": "Seq-L1"}


def _check_target(path: Path) -> None:
    """Find out before a training whether its result can be written."""
    if path.is_dir():
        raise InputError(f"--out {path}: is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"--out {path}: the folder {path.parent} may not be written to")


def _training_reporter() -> Callable[[Progress], None]:
    """Says now and then, and after each validation, how far a training is."""
    said_at = -math.inf
    said_recall: float | None = None

    def say(progress: Progress) -> None:
        nonlocal said_at, said_recall
        if time.monotonic() - said_at < _EVERY_SECONDS and progress.recall == said_recall:
            return
        said_at, said_recall = time.monotonic(), progress.recall
        recall = "" if progress.recall is None else f", recall@k+3 {progress.recall:.3f}"
        left = f", {progress.minutes * (1 / progress.share - 1):.1f} min left" if progress.share else ""
        line = (
            f"{progress.minutes:.1f} min, epoch {progress.epoch}, {progress.tokens:,} tokens, loss {progress.loss:.4f}"
        )
        err.print(f"{progress.phase}: {line}{recall}{left}", highlight=False, soft_wrap=True)

    return say


def _say_evaluation(done: int, total: int) -> None:
    if done == total or done % max(total // 10, 1) == 0:
        err.print(f"{done} of {total} sequences", highlight=False)


def _print(summary: Summary) -> None:
    values = summary.as_dict()
    table = Table(title=f"{values['kind']} on {values['model']}: {values['sequences']} sequences")
    table.add_column("recall among", no_wrap=True)
    for name in values["recall"]:
        table.add_column(f"top {name}", justify="right", no_wrap=True)
    rows = {"Seq-1": "recall", "  95 %": "interval", "Seq-8": "seq8", "  95 % ": "seq8_interval", "Seq-L1": "long"}
    for title, key in rows.items():
        table.add_row(title, *map(_cell, values[key].values()))
    for residency, recalls in values["recall_on_misses"].items():
        table.add_row(f"misses at {float(residency):.0%}", *map(_cell, recalls.values()))
    out.print(table)
    for name, reason in values["missing"].items():
        out.print(f"{_TITLES.get(name, name)}: missing ({reason})", highlight=False, soft_wrap=True)
    out.print(f"expected calibration error {_cell(values['ece'])}", highlight=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    low, *rest = (f"{part:.3f}".removeprefix("0") for part in (value if isinstance(value, list | tuple) else [value]))
    return "-".join([low, *rest])
