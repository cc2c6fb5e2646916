"""`seqmoe trace collect`: traces of a Hugging Face MoE model on prompts of one's choice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmoe.cli.base import JsonFlag, out, print_json
from seqmoe.cli.trace import trace_app
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.spec.paths import Home
    from seqmoe.traces.collect.collector import Collected
    from seqmoe.traces.collect.request import Prompt


@trace_app.command("collect")
def trace_collect(
    model: Annotated[str, typer.Option(help="A name of suites/models, a checkpoint folder, or a hub id.")],
    prompts: Annotated[str, typer.Option(help="A data set of suites/datasets, or a file of JSON lines with text.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder of the store; called again, a collection goes on.")],
    tokens: Annotated[int, typer.Option(help="Most new tokens of a sequence.")] = 512,
    samples: Annotated[int, typer.Option(help="Sequences per prompt.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the tokens that are drawn.")] = 0,
    batch: Annotated[int, typer.Option(help="Sequences that are generated together.")] = 16,
    limit: Annotated[int | None, typer.Option(help="Take only the first so many prompts.")] = None,
    early: Annotated[bool, typer.Option(help="Also keep what each router chooses one layer early.")] = True,
    stop_at_end: Annotated[
        bool, typer.Option("--stop-at-end/--ignore-end", help="End at end-of-text, or never choose it.")
    ] = True,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Use the chat template; default: where there is one.")
    ] = None,
    engine: Annotated[str, typer.Option(help="What generates: auto, vllm or transformers.")] = "auto",
    pack_tokens: Annotated[int, typer.Option(help="Tokens of one forward of the routing pass.")] = 2048,
    as_json: JsonFlag = False,
) -> None:
    """Collect routing traces: generate sequences, then read the routers.

    Several processes share the work under `accelerate launch -m seqmoe trace collect ...`.
    """
    from seqmoe.spec.choice import choose_model
    from seqmoe.spec.paths import find_home
    from seqmoe.traces.collect.collector import collect
    from seqmoe.traces.collect.progress import console_progress
    from seqmoe.traces.collect.request import CollectOptions

    options = CollectOptions(
        tokens, samples, temperature, seed, batch, early, stop_at_end, chat, engine, pack_tokens
    )  # fmt: skip
    home = find_home()
    chosen = choose_model(home, model)
    asked = _prompts(home, prompts, limit)
    with console_progress("collecting") as report:
        done = collect(
            chosen.location, asked, folder, options, name=model, licence=_licence(home, model), report=report
        )
    if done.rank == 0:
        _show(done, as_json)


def _prompts(home: Home, name: str, limit: int | None) -> list[Prompt]:
    """Prompts with identifiers by their place in the set."""
    from seqmoe.harness.prompts import Unavailable, load_prompts, read_prompt_file
    from seqmoe.spec.dataset import dataset_file, load_dataset
    from seqmoe.traces.collect.request import Prompt

    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit}: must be at least 1")
    if name.endswith(".jsonl"):
        label, texts = Path(name).stem, read_prompt_file(Path(name))
    else:
        dataset = load_dataset(home, name)
        label = name
        if dataset.file:
            texts = read_prompt_file(dataset_file(home, dataset), (dataset.field,))
        elif limit is None:
            raise InputError(f"--prompts {name}: is a set of the hub; say with --limit how many prompts to take")
        else:
            try:
                texts = load_prompts(home, name, limit)
            except Unavailable as error:
                raise InputError(f"--prompts {name}: {error.reason}; {error.hint}") from None
    return [Prompt(f"{label}-{number:05d}", label, text) for number, text in enumerate(texts[:limit], start=1)]


def _licence(home: Home, model: str) -> str:
    from seqmoe.spec.model import load_model

    declared = (home.suites / "models" / f"{model}.toml").is_file()
    return load_model(home, model).licence if declared else ""


def _show(done: Collected, as_json: bool) -> None:
    from seqmoe.traces.source import digest
    from seqmoe.traces.store import open_store
    from seqmoe.traces.summary import column

    traces = open_store(done.out)
    steps, prompts = sum(column(traces.requests, "steps")), sum(column(traces.requests, "prompt_length"))
    found: dict[str, Any] = {
        "path": str(done.out),
        "model": traces.model,
        "layers": traces.layers,
        "experts": traces.experts,
        "top_k": traces.top_k,
        "router": traces.router,
        "requests": len(traces.requests),
        "written": done.written,
        "skipped": list(done.skipped),
        "tokens": steps,
        "decode_tokens": steps - prompts,
        "packed": done.packed,
        "digest": digest(traces),
    }
    if as_json:
        print_json(found)
        return
    out.print(
        f"{done.out}: {traces.model}, {found['requests']} requests ({done.written} new), {steps:,} tokens, "
        f"{steps - prompts:,} of them decode ({found['digest']})"
    )
