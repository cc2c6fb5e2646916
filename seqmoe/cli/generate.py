"""`seqmoe generate`: one prompt through one system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, err, out, print_json
from seqmoe.spec.errors import InputError


@app.command()
def generate(
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    model: Annotated[
        str, typer.Option(help="reference, a name of suites/models, a folder, or a hub id.")
    ] = "reference",
    residency: Annotated[float, typer.Option(help="Share of all experts that the device holds.")] = 0.45,
    system: Annotated[str, typer.Option(help="full, naive, lru or seqmoe.")] = "seqmoe",
    emulate: Annotated[str | None, typer.Option(help="Imitate this GPU in dilated time, for example rtx4090.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens to generate.")] = 64,
    predictor: Annotated[
        Path | None, typer.Option(help="Predictor file, for system seqmoe; default: the model's own.")
    ] = None,
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
    spec = systems.system(system)
    if predictor is not None and spec.predictor == "none":
        raise InputError(f"--predictor {predictor}: system {system!r} makes no forecasts; --system seqmoe does")
    chosen = choose_model(home, model)
    result = run(
        chosen.location,
        prompt,
        spec,
        residency,
        tokens,
        load_hardware(home, emulate).emulated_pace if emulate is not None else None,
        predictor or chosen.predictor,
        threads,
    )
    if as_json:
        print_json(result.as_dict())
        return
    out.print(result.text, markup=False, highlight=False)
    rate = "none" if result.hit_rate is None else f"{result.hit_rate:.1%}"
    err.print(
        f"{result.system} at {result.residency:.0%}, {result.lane}: {result.decode_tok_s:.1f} tok/s, "
        f"TTFT {result.ttft_s:.3f} s, hit rate {rate}, sha256 {result.sha256[:12]}",
        soft_wrap=True,
    )
