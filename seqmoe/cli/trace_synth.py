"""`seqmoe trace synth`: synthetic routing of a declared model, as a store of traces like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag
from seqmoe.cli.trace import HalfFlag, report_store, trace_app


@trace_app.command("synth")
def trace_synth(
    model: Annotated[str, typer.Option(help="A name of suites/models, for its layers, experts and top-k.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder of the new store.")],
    requests: Annotated[int, typer.Option(help="How many requests.")] = 8,
    prompt: Annotated[int, typer.Option(help="Prefill tokens of each.")] = 192,
    decode: Annotated[int, typer.Option(help="Decode tokens of each.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same traces.")] = 0,
    half: HalfFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Draw synthetic routing with the reuse that is published of real models; it is of no text."""
    from seqmoe.simulate.timeline.cell import routing_process
    from seqmoe.spec.calibration import load_calibration
    from seqmoe.spec.model import load_model
    from seqmoe.spec.paths import find_home
    from seqmoe.traces.store import write_store
    from seqmoe.traces.synthesis.requests import SyntheticRequests, synthesise

    home = find_home()
    geometry = load_model(home, model).geometry
    process = routing_process(load_calibration(home))
    traces = synthesise(model, SyntheticRequests(geometry, process, requests, prompt, decode, seed))
    write_store(traces, folder, half=half)
    report_store(folder, as_json)
