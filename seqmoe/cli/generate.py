"""`seqmoe generate`: one prompt through one system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, err, out, print_json
from seqmoe.cli.live import live_text
from seqmoe.cli.random_options import ConfigOption, LayersOption, WeightsOption, random_source
from seqmoe.cli.sampling_options import ChatOption, SeedOption, TemperatureOption, TopPOption, sampling_of
from seqmoe.spec.choice import MOST_THREADS
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seqmoe.runtime.stream import GenerateResult
    from seqmoe.spec.paths import Home
    from seqmoe.spec.system import SystemSpec


@app.command()
def generate(
    prompt: Annotated[str | None, typer.Option(help="Text to continue; needed unless routing is replayed.")] = None,
    model: Annotated[
        str, typer.Option(help="reference, a name of suites/models, a folder, or a hub id.")
    ] = "reference",
    residency: Annotated[float, typer.Option(help="Share of all experts that the device holds.")] = 0.45,
    system: Annotated[
        str, typer.Option(help="full, naive, lru, lfu, seqmoe, seqmoe_learned, ...; a wrong name lists all.")
    ] = "seqmoe",
    execution: Annotated[
        str | None,
        typer.Option(help="eager: expert by expert; sync: a kernel a layer; graph: the whole step compiled."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, or auto for the checkpoint's own; default: float32, bfloat16 of --config."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where all experts lie: pageable or pinned memory, or disk.")] = "pageable",
    routing: Annotated[
        str,
        typer.Option(
            metavar="model|replay:SRC",
            help="Where routing comes from: the running model, or traces, through stand-in experts of the real size; "
            "with --config through experts that are really as large.",
        ),
    ] = "model",
    config: ConfigOption = None,
    weights: WeightsOption = None,
    layers: LayersOption = 0,
    emulate: Annotated[str | None, typer.Option(help="Imitate this GPU in dilated time, for example rtx4090.")] = None,
    dilation: Annotated[
        float | None,
        typer.Option(min=1, max=50, help="Stretch imitated time by this; default: as little as this machine needs."),
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="Tokens to generate; at most, with --chat or --temperature, which heed the end of text.")
    ] = 64,
    chat: ChatOption = False,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    seed: SeedOption = None,
    predictor: Annotated[
        Path | None,
        typer.Option(
            help="Predictor file; default: the model's own. With replayed routing also online_first_order or previous, "
            "which learn as they go."
        ),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Popularity file of the model (`predictor train`); default: the model's own.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the model.", min=1, max=MOST_THREADS)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Continue a prompt through one system, greedily unless told otherwise, and say what it cost."""
    from seqmoe.runtime.generate import generate as run
    from seqmoe.runtime.setup import Setup, with_execution
    from seqmoe.spec import system as systems
    from seqmoe.spec.choice import choose_model
    from seqmoe.spec.miss_prices import emulated_pace
    from seqmoe.spec.paths import find_home

    home = find_home()
    spec = systems.system(system)
    source = random_source(config, weights, routing, layers)
    sampling = sampling_of(chat, temperature, top_p, seed)
    if sampling is not None and routing != "model":
        raise InputError("--chat, --temperature: replayed routing has no text; leave them out")
    if dilation is not None and emulate is None:
        raise InputError(f"--dilation {dilation:g}: stretches imitated time; give --emulate with a GPU too")
    checkpoint = {"--model": model if model != "reference" else None, "--profile": profile}
    checkpoint |= {"--host": host if host != "pageable" else None}
    if config is not None and source is not None:
        _refuse(checkpoint, "random weights come from no checkpoint")
        if (prompt, emulate) != (None, None):
            raise InputError("--prompt, --emulate: random weights decode replayed requests at this host's own speed")
        spec = spec if execution is None else with_execution(spec, execution)
        dtype = "bfloat16" if dtype in (None, "auto") else dtype
        _print(_random(home, config, source, spec, residency, tokens, predictor, layers, dtype, threads), as_json)
        return
    if routing != "model":
        _refuse(checkpoint | {"--execution": execution, "--dtype": dtype}, "replayed routing runs no model")
        _print(_replayed(home, routing, spec, residency, tokens, emulate, predictor, dilation, prompt), as_json)
        return
    if prompt is None:
        raise InputError("--prompt is missing: give the text to continue")
    if predictor is not None and spec.predictor == "none":
        raise InputError(f"--predictor {predictor}: system {system!r} makes no forecasts; --system seqmoe does")
    chosen = choose_model(home, model)
    if execution is not None:
        spec = with_execution(spec, execution)
    setup = Setup(spec, residency, predictor or chosen.predictor, profile or chosen.profile, host)
    pace = emulated_pace(home, emulate) if emulate is not None else None
    dtype = "float32" if dtype is None else dtype
    with live_text(quiet=as_json) as live:
        result = run(
            chosen.location, prompt, setup, tokens, pace, dilation, dtype, threads, live,
            sampling=sampling, chat=chat,
        )  # fmt: skip
    _print(result, as_json, streamed=True)


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """`InputError` for the first option that was given although nothing would heed it."""
    for option, value in options.items():
        if value is not None:
            raise InputError(f"{option} {value}: {reason}; leave it out")


def _print(result: GenerateResult, as_json: bool, streamed: bool = False) -> None:
    if as_json:
        print_json(result.as_dict())
        return
    if result.text and not streamed:
        out.print(result.text, markup=False, highlight=False)
    if result.origin:
        err.print(result.origin, highlight=False)
    rate = "none" if result.hit_rate is None else f"{result.hit_rate:.1%}"
    first = f"missing ({result.missing['ttft_s']})" if result.ttft_s is None else f"{result.ttft_s:.3f} s"
    err.print(
        f"{result.system} at {result.residency:.0%}, {result.lane}: {result.decode_tok_s:.1f} tok/s, "
        f"TTFT {first}, hit rate {rate}{_on_cpu(result)}, sha256 {result.sha256[:12]}",
        soft_wrap=True,
    )


def _on_cpu(result: GenerateResult) -> str:
    """How many misses the host's CPU computed, for a system that lets it."""
    computed = result.breakdown.get("host_computed")
    return "" if computed is None else f", {computed:,.0f} of {result.breakdown['misses']:,.0f} misses on the CPU"


def _random(
    home: Home,
    config: str,
    source: str,
    spec: SystemSpec,
    residency: float,
    tokens: int,
    predictor: Path | None,
    layers: int,
    dtype: str,
    threads: int,
) -> GenerateResult:
    from seqmoe.runtime.random_model.generate import random_generate
    from seqmoe.runtime.random_model.opened import RandomModel
    from seqmoe.runtime.replay_generate import predictor_name
    from seqmoe.simulate.synthetic import SYNTHETIC, synthetic_name, synthetic_store
    from seqmoe.spec.model import load_model

    model = load_model(home, config)
    traces = str(synthetic_store(home, synthetic_name(config))) if source == SYNTHETIC else source
    name = predictor_name(spec, predictor)
    return random_generate(
        RandomModel(model, traces, layers=layers, dtype=dtype, predictor=name), spec, residency, tokens, threads
    )


def _replayed(
    home: Home,
    routing: str,
    spec: SystemSpec,
    residency: float,
    tokens: int,
    emulate: str | None,
    predictor: Path | None,
    dilation: float | None,
    prompt: str | None,
) -> GenerateResult:
    from seqmoe.runtime.replay_generate import replay_generate

    kind, _, source = routing.partition(":")
    if kind != "replay" or not source:
        raise InputError(f"--routing {routing}: must be model, or replay:SRC with the traces to replay")
    if prompt is not None:
        raise InputError("--prompt: replayed routing has no text; leave it out")
    if emulate is None:
        raise InputError("--routing replay needs --emulate: without a model there is no computation to measure")
    return replay_generate(source, spec, residency, tokens, home, emulate, predictor, dilation)
