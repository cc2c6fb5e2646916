"""The options of what runs on random weights: they come together or not at all."""

from __future__ import annotations

from typing import Annotated

import typer

from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.suite import RANDOM

ConfigOption = Annotated[
    str | None,
    typer.Option(help="Real sizes without a checkpoint: a name of suites/models, for --weights random."),
]
WeightsOption = Annotated[
    str | None, typer.Option(metavar="random", help="With --config: random numbers in place of a checkpoint's.")
]
LayersOption = Annotated[
    int, typer.Option(min=0, help="With --config: only the first so many layers, for a smaller machine; 0 for all.")
]


def random_source(config: str | None, weights: str | None, routing: str | None, layers: int) -> str | None:
    """The traces to replay on random weights, or None where nothing of the kind was asked for.

    Raises `InputError` for one of the options without the others.
    """
    if config is None:
        if weights is not None or layers:
            given = f"--weights {weights}" if weights is not None else f"--layers {layers}"
            raise InputError(f"{given}: belongs to --config NAME, a name of suites/models")
        return None
    if weights != RANDOM:
        hint = f"--weights {weights}: {nearest(weights, (RANDOM,))}" if weights is not None else "--weights is missing"
        raise InputError(f"{hint}; --config {config} needs --weights {RANDOM}; a checkpoint is given as --model")
    kind, _, source = (routing or "").partition(":")
    if kind != "replay" or not source:
        raise InputError(
            f"--config {config}: random weights need --routing replay:SRC with the traces to replay, or "
            "replay:synthetic"
        )
    return source
