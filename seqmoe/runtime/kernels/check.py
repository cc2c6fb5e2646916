"""``python -m seqmoe.runtime.kernels.check``: every kernel, in every format, compiled for every architecture."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

# Both need Triton; without it, `main` says so.
if TYPE_CHECKING:
    from seqmoe.runtime.kernels.compiled import Compiled
    from seqmoe.runtime.kernels.variants import Variant

ARCHITECTURES = (80, 89, 90, 120)
ONLY_A_GPU = (
    "Only a GPU can show races, missing barriers, the order of accesses at system scope, and speed: "
    "what was interpreted ran one thread after another, and what was compiled did not run."
)


def compile_all(architectures: tuple[int, ...], kernels: tuple[str, ...]) -> dict[tuple[str, str], dict[int, Compiled]]:
    """What became of each (kernel, format or sizes) on each architecture; ``kernels`` empty for all.

    Two processes work on several architectures.
    """
    chosen = _chosen(kernels)
    if len(architectures) == 1:
        columns = [_column(architectures[0], kernels)]
    else:
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            columns = list(pool.map(_column, architectures, [kernels] * len(architectures)))
    return {
        (variant.call.name, variant.of): dict(zip(architectures, row, strict=True))
        for variant, row in zip(chosen, zip(*columns, strict=True), strict=True)
    }


def _column(architecture: int, kernels: tuple[str, ...]) -> list[Compiled]:
    from seqmoe.runtime.kernels.compiled import compile_call

    return [compile_call(variant.call, architecture) for variant in _chosen(kernels)]


def _chosen(kernels: tuple[str, ...]) -> list[Variant]:
    from seqmoe.runtime.kernels.variants import variants

    all_of_them = variants(find_home())
    names = {variant.call.name for variant in all_of_them}
    if unknown := set(kernels) - names:
        raise InputError(f"kernel {min(unknown)!r} is unknown; valid: {', '.join(sorted(names))}")
    return [variant for variant in all_of_them if not kernels or variant.call.name in kernels]


def table(results: dict[tuple[str, str], dict[int, Compiled]]) -> str:
    """Kernels by architectures: registers of a thread, and the bytes that spill where some do."""
    architectures = list(next(iter(results.values())))
    rows = [("kernel", "compiled for", *(f"sm_{architecture}" for architecture in architectures))]
    rows += [(name, of, *(_cell(each) for each in row.values())) for (name, of), row in results.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cell(compiled: Compiled) -> str:
    if compiled.error:
        return "failed"
    spilled = sum(compiled.spilled)
    return f"{compiled.registers} regs" + (f", {spilled} B spilled" if spilled else "")


def main(arguments: list[str] | None = None) -> int:
    """Compile, print the table; 1 if a kernel does not compile, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m seqmoe.runtime.kernels.check", description=__doc__)
    parser.add_argument("--architectures", default=",".join(map(str, ARCHITECTURES)), help="compute capabilities x 10")
    parser.add_argument("--kernels", default="", help="names, by commas; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    try:
        architectures = _numbers(options.architectures)
        results = compile_all(architectures, tuple(name for name in options.kernels.split(",") if name))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    failures = [(*key, cap, each.error) for key, row in results.items() for cap, each in row.items() if each.error]
    print(table(results))
    for name, of, architecture, reason in failures:
        print(f"{name} ({of}) for sm_{architecture}: {reason}")
    spilled = sum(any(each.spilled) for row in results.values() for each in row.values())
    print(f"{len(results)} kernels x {len(architectures)} architectures: {len(failures)} fail, {spilled} spill.")
    print(ONLY_A_GPU)
    if options.json:
        print(json.dumps({"kernels": _rows(results)}))
    return 1 if failures else 0


def _rows(results: dict[tuple[str, str], dict[int, Compiled]]) -> list[dict[str, object]]:
    return [
        {"kernel": name, "of": of, "architecture": architecture, **asdict(compiled)}
        for (name, of), row in results.items()
        for architecture, compiled in row.items()
    ]


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"--architectures {text!r}: give compute capabilities x 10, such as 80,90") from None
    if unknown := set(numbers) - set(ARCHITECTURES):
        raise InputError(f"--architectures {text!r}: {min(unknown)} is not checked; valid: {ARCHITECTURES}")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
