"""The model that ships with the package: its card, its recipe, its checkpoint for others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, out, print_json
from seqmoe.spec.errors import InputError

reference_app = typer.Typer(no_args_is_help=True, help="The small MoE model that ships with the package.")
app.add_typer(reference_app, name="reference")


@reference_app.command("info")
def reference_info(as_json: JsonFlag = False) -> None:
    """Show the model card: data, recipe, perplexity, routing."""
    from seqmoe.reference.release import read_card

    card = read_card()
    if as_json:
        print_json(card)
    else:
        out.print_json(data=card)


@reference_app.command("train")
def reference_train(
    folder: Annotated[Path, typer.Option("--out", help="Folder of the finished model.")],
    work: Annotated[Path, typer.Option(help="Folder for progress; a second call continues from it.")] = Path(
        "reference-training"
    ),
    tokens: Annotated[int | None, typer.Option(help="Training budget in tokens; default: the recipe's.")] = None,
    seed: int = 0,
    as_json: JsonFlag = False,
) -> None:
    """Train the reference model from scratch by its recipe, on one CPU thread (about two hours)."""
    from seqmoe.reference.recipe import Recipe
    from seqmoe.reference.release import release
    from seqmoe.reference.training import train

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        recipe = Recipe(seed=seed) if tokens is None else Recipe(seed=seed, tokens=tokens)
    except ValueError as error:
        raise InputError(f"--tokens: {error}") from None
    train(recipe, work)
    card = release(recipe, work, folder)
    if as_json:
        print_json(card)
    else:
        out.print(f"[bold]{folder}[/]: held-out perplexity {card['held_out_perplexity']['model']:.1f}")


@reference_app.command("export")
def reference_export(
    folder: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    form: Annotated[str, typer.Option("--format", help="hf or gguf")] = "hf",
) -> None:
    """Write the reference model as a checkpoint for others."""
    from seqmoe.reference.export import export
    from seqmoe.reference.release import CHECKPOINT

    out.print(str(export(CHECKPOINT, form, folder)))
