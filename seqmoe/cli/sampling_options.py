"""How tokens are chosen, and as what a prompt is read: options of `seqmoe generate` for people who talk to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.runtime.sampling import Sampling

ChatOption = Annotated[
    bool, typer.Option("--chat", help="The prompt is a message: put it into the model's chat template.")
]
TemperatureOption = Annotated[
    float | None, typer.Option(help="Choose tokens by chance, in [0, 2]; 0, the default, is greedy.")
]
TopPOption = Annotated[float | None, typer.Option(help="Only from the likeliest that together reach this share.")]
SeedOption = Annotated[int | None, typer.Option(help="The same seed gives the same answer.")]


def sampling_of(chat: bool, temperature: float | None, top_p: float | None, seed: int | None) -> Sampling | None:
    """How to sample, up to the model's end of text; None where no option asks for it: greedily, and never ended.

    `InputError` for what is out of range, and for --top-p or --seed where nothing is left to chance.
    """
    from seqmoe.runtime.sampling import Sampling

    if not chat and (temperature, top_p, seed) == (None, None, None):
        return None
    if not temperature and (top_p, seed) != (None, None):
        option = "--top-p" if top_p is not None else "--seed"
        raise InputError(f"{option}: nothing is left to chance without --temperature; give one above 0")
    try:
        return Sampling(temperature or 0.0, 1.0 if top_p is None else top_p, seed)
    except ValueError as error:
        raise InputError(f"--{str(error).replace('top_p', 'top-p', 1)}") from None
