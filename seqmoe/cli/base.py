"""What every command shares: the application, where it prints, and the options that recur."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from seqmoe import __version__
from seqmoe.spec.errors import InputError

_HELP = "SeqMoE: predictive offloading of Mixture-of-Experts models, and the harness that tests it beside its rivals."
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=_HELP)
out, err = Console(), Console(stderr=True)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"seqmoe {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object as the last line of stdout.")]


def print_json(value: Any) -> None:
    """The command's result as one line of stdout."""
    print(json.dumps(value))


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 cell", "2 cells"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_words(size: int) -> str:
    """Bytes as people say them: "3.2 GiB", "512 KiB"."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 100 * unit else f"{size / unit:.0f} {name}"
    return f"{size} bytes"


def numbers(text: str, option: str) -> list[float]:
    """A comma-separated list of numbers, or an `InputError` that names the option."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option}: {text!r} is not a comma-separated list of numbers, for example 0.15,0.45"
        ) from None
