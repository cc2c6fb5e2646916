"""`seqmoe serve`: a model and a system behind an OpenAI-compatible server."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import app, err
from seqmoe.spec.choice import MOST_THREADS
from seqmoe.spec.errors import InputError

_NEEDED = ("fastapi", "uvicorn", "prometheus_client", "greenlet")
_TOKEN = "SEQMOE_TOKEN"
_DAY = 86_400


@app.command()
def serve(
    model: Annotated[
        str, typer.Option(help="reference, a name of suites/models, a folder, or a hub id.")
    ] = "reference",
    residency: Annotated[float, typer.Option(help="Share of all experts that the device holds.")] = 0.45,
    system: Annotated[str, typer.Option(help="full, lru, seqmoe, ...; a wrong name lists all.")] = "seqmoe",
    execution: Annotated[
        str | None,
        typer.Option(help="eager or sync: requests decode together; graph: in turns, through compiled steps."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, or auto for the checkpoint's own.")] = "float32",
    pool: Annotated[str, typer.Option(help="Where all experts lie: pageable or pinned memory, or disk.")] = "pageable",
    predictor: Annotated[Path | None, typer.Option(help="Predictor file; default: the model's own.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Popularity file; default: the model's own.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the model.", min=1, max=MOST_THREADS)] = 1,
    name: Annotated[str | None, typer.Option(help="What clients call the model; default: what --model says.")] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="A Jinja file, for a model without a chat template or instead of its own.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; all but loopback ones need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 chooses a free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar=_TOKEN, help="Bearer token that clients must send; others on this machine can read it."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token in its first line.")] = None,
    batch: Annotated[int, typer.Option(help="Requests that decode together.", min=1)] = 8,
    queue: Annotated[int, typer.Option(help="Requests that may wait beyond those; then clients get 429.", min=0)] = 64,
    context: Annotated[
        int, typer.Option(help="Tokens of a request with its answer; 0: the model's, at most 4096.", min=0)
    ] = 0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request's body.", min=1)] = 4 * 2**20,
    max_seconds: Annotated[float, typer.Option(help="Time of a request, waiting included.", min=1, max=_DAY)] = 600,
    silent_seconds: Annotated[
        float, typer.Option(help="A client that sends or reads nothing for so long is disconnected.", min=1, max=_DAY)
    ] = 30,
) -> None:
    """Serve a model to OpenAI's clients, with metrics for Prometheus and a live page.

    Ends on SIGTERM or Ctrl-C when the answers that have begun are finished.
    """
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise InputError(f"serve needs {', '.join(missing)}: pip install 'seqmoe[serve]'")
    from seqmoe.runtime.session import prepare
    from seqmoe.serve.limits import Limits
    from seqmoe.serve.run import serve as run
    from seqmoe.serve.server import listening_socket
    from seqmoe.spec import system as systems

    if predictor is not None and systems.system(system).predictor == "none":
        raise InputError(f"--predictor {predictor}: system {system!r} makes no forecasts; --system seqmoe does")
    if name is not None and not name.strip():
        raise InputError(f"--name {name!r}: clients need a name to ask for; give one, or leave the option out")
    secret = _secret(token, token_file)
    if chat_template is not None and not chat_template.is_file():
        raise InputError(f"--chat-template {chat_template}: no such file")
    limits = Limits(batch, queue, context, max_body, max_seconds, silent_seconds)
    with listening_socket(host, port, secret) as bound:
        checkpoint, setup = prepare(
            model,
            residency,
            system,
            dtype=dtype,
            host=pool,
            execution=execution,
            predictor=predictor,
            profile=profile,
            threads=threads,
        )
        called = name or model

        def ready(address: str) -> None:
            err.print(f"serving {called} ({system}) at {address}", highlight=False, soft_wrap=True)

        finished = run(checkpoint, setup, called, limits, bound, secret, chat_template, ready)
    if not finished:
        raise KeyboardInterrupt


def _secret(token: str | None, path: Path | None) -> str | None:
    """The bearer token; the environment's counts where no file is given."""
    if path is None:
        found, where = token, "--token"
    else:
        if token is not None and token != os.environ.get(_TOKEN):
            raise InputError("--token and --token-file: give one of them")
        found, where = (
            (path.read_text(encoding="utf-8", errors="replace").splitlines() or [""])[0].strip(),
            f"--token-file {path}",
        )
    if found is not None and (not found or not found.isascii() or not found.isprintable() or " " in found):
        raise InputError(f"{where}: the token must be one word of printable ASCII letters")
    return found
