"""`seqmoe trace`: import, describe and split routing traces."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, counted, err, out, print_json
from seqmoe.cli.sources import SOURCE_HELP, traces_of
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.trace import ROUTERS, TraceSet

if TYPE_CHECKING:
    from seqmoe.traces.statistics import RoutingProfile

trace_app = typer.Typer(no_args_is_help=True, help="Routing traces: import, collect, describe, split.")
app.add_typer(trace_app, name="trace")

Source = Annotated[str, typer.Argument(metavar="SRC", help=SOURCE_HELP)]
HalfFlag = Annotated[bool, typer.Option("--half", help="Keep weights and logits in half precision.")]
PLOTS = (".png", ".svg")


@trace_app.command("import")
def trace_import(
    source: Source,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the new store.")],
    model: Annotated[str | None, typer.Option(help="The model's name, where the file does not tell.")] = None,
    experts: Annotated[int | None, typer.Option(help="Experts per layer; default: as told, or largest id + 1.")] = None,
    model_top_k: Annotated[int | None, typer.Option(help="The model's own top-k, if another one was run.")] = None,
    router: Annotated[str | None, typer.Option(help=f"Kind of router: {', '.join(ROUTERS)}.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the traces.")] = None,
    half: HalfFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import traces of any known format into a store that is read lazily."""
    from seqmoe.traces.described import described
    from seqmoe.traces.store import write_store

    if router is not None and router not in ROUTERS:
        raise InputError(f"--router {router}: {nearest(router, ROUTERS)}")
    told = {"model": model, "experts": experts, "model_top_k": model_top_k, "router": router, "licence": licence}
    traces = described(traces_of(source), source, **told)
    write_store(traces, folder, half=half)
    report_store(folder, as_json)


@trace_app.command("stats")
def trace_stats(
    source: Source,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure; its suffix decides: .png or .svg.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Order of the tokens for the shuffled overlap.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Describe traces: counts, overlap of consecutive tokens, load entropy, reuse distances, distinct experts."""
    from seqmoe.traces.statistics import routing_profile

    if plot is not None and plot.suffix.lower() not in PLOTS:
        raise InputError(f"--plot {plot}: expected a name that ends in {' or '.join(PLOTS)}")
    traces = traces_of(source)
    with err.status("reading requests") as status:
        total = len(traces.requests)
        profile = routing_profile(traces, seed, lambda done: status.update(f"{done} of {total} requests"))
    if plot is not None:
        from seqmoe.report.trace_plot import write_plot

        write_plot(traces, profile, plot)
    found = _as_json(traces, profile)
    if as_json:
        print_json(found)
    else:
        out.print(_table(traces, profile))
        if plot is not None:
            out.print(f"figure: {plot}")


@trace_app.command("split")
def trace_split(
    source: Source,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the stores train and test.")],
    test: Annotated[float, typer.Option(help="Share of the requests that go to the test store.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of the choice of test requests.")] = 0,
    half: HalfFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Split traces by request into two stores, DIR/train and DIR/test."""
    from seqmoe.traces.source import digest
    from seqmoe.traces.split import split
    from seqmoe.traces.store import open_store, write_store

    parts = dict(zip(("train", "test"), split(traces_of(source), test, seed), strict=True))
    for name in parts:
        if (folder / name).exists():
            raise InputError(f"{folder / name}: already exists; give a new folder")
    for name, part in parts.items():
        write_store(part, folder / name, half=half)
    found = {
        name: {"path": str(folder / name), "requests": len(part.requests), "digest": digest(open_store(folder / name))}
        for name, part in parts.items()
    }
    if as_json:
        print_json(found)
    else:
        for name, about in found.items():
            out.print(f"{name}: {about['requests']} requests in {about['path']} ({about['digest']})")


def report_store(folder: Path, as_json: bool) -> None:
    """What a store that was just written holds."""
    from seqmoe.traces.manifest import read_manifest

    about = read_manifest(folder)
    requests, steps = sum(s.requests for s in about.shards), sum(s.steps for s in about.shards)
    if as_json:
        found = asdict(about) | {
            "path": str(folder),
            "requests": requests,
            "tokens": steps,
            "shards": len(about.shards),
        }
        print_json(found)
    else:
        out.print(
            f"{folder}: {about.model}, {counted(requests, 'request')}, {steps:,} tokens, {about.layers} layers, "
            f"{about.experts} experts, top-{about.top_k} ({about.digest})"
        )


def _as_json(traces: TraceSet, profile: RoutingProfile) -> dict[str, Any]:
    """The command's JSON: geometry, `RoutingStatistics` with both token counts, and what is known by layer."""
    from seqmoe.traces.source import digest
    from seqmoe.traces.statistics import quantile

    names = ("model", "layers", "experts", "top_k", "model_top_k", "router", "licence", "source", "expert_bytes")
    statistics = asdict(profile.statistics)
    decode = statistics.pop("tokens")
    counts = {"tokens": decode + statistics["prefill_tokens"], "decode_tokens": decode}
    by_layer = {
        name: [None if value != value else round(float(value), 6) for value in getattr(profile, name)]
        for name in ("entropy", "overlap", "overlap_shuffled", "distinct")
    }
    by_layer["reuse_median"] = [quantile(row, 0.5) for row in profile.reuse]
    return (
        {name: getattr(traces, name) for name in names}
        | {"digest": digest(traces)}
        | statistics
        | counts
        | {"reuse_quantiles": profile.reuse_quantiles(), "by_layer": by_layer}
    )


def _table(traces: TraceSet, profile: RoutingProfile) -> Table:
    """The same for people."""
    import numpy as np

    found = profile.statistics
    quantiles = profile.reuse_quantiles()
    lengths = profile.lengths
    table = Table(title=f"{traces.model}: {traces.layers} layers, {traces.experts} experts, top-{traces.top_k}")
    table.add_column("statistic")
    table.add_column("value", justify="right")
    table.add_column("lowest to highest layer", justify="right")

    def span(values: Any, form: str) -> str:
        known = values[~np.isnan(values)]
        return f"{known.min():{form}} to {known.max():{form}}" if len(known) else "-"

    rows = [
        ("requests", f"{found.requests:,}", ""),
        ("tokens", f"{found.tokens + found.prefill_tokens:,}", ""),
        ("  prefill", f"{found.prefill_tokens:,}", ""),
        ("  decode", f"{found.tokens:,}", ""),
        ("  decode, median request", f"{np.median(lengths):.0f}" if len(lengths) else "-", ""),
        ("overlap, consecutive tokens", f"{found.overlap:.3f}", span(profile.overlap, ".3f")),
        ("  tokens shuffled", f"{found.overlap_shuffled:.3f}", span(profile.overlap_shuffled, ".3f")),
        ("load entropy (1: even)", f"{found.entropy:.3f}", span(profile.entropy, ".3f")),
        ("distinct experts", f"{found.distinct:.1f}", span(profile.distinct, ".1f")),
        ("reuse distance, median", f"{found.reuse_median:.0f}", ""),
        *((f"  {float(share):.0%} within", f"{value:.0f}", "") for share, value in quantiles.items() if share != "0.5"),
        ("  first uses", f"{found.first_use:.2%}", ""),
    ]
    for row in rows:
        table.add_row(*row)
    return table
