"""Finding a suite, and choosing a part of its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from seqmoe.spec.declared import declaration, read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Suite, load_suite


class Chosen(Protocol):
    """What can be chosen from: cells of any kind."""

    @property
    def key(self) -> str:
        """Twelve hex digits that identify the cell."""


C = TypeVar("C", bound=Chosen)
_FIELDS = (
    "system", "model", "lane", "panel", "dataset", "hardware", "residency", "batch", "prompts", "decode_tokens",
    "routing", "predictor", "execution", "link", "weights", "layers", "what_if",
)  # fmt: skip
# A bare word names one of these; a number could mean several fields, so those need "field=value".
_WORDS = ("system", "model", "lane", "panel", "dataset", "hardware")
_NUMBERS = ("residency", "minutes")


def suite_path(home: Home, name: str | Path) -> Path:
    """The file of the suite of that name in suites/, or that TOML file; anything else is an `InputError`.

    So is a file that bears the name of another suite of suites/: their records would lie in one file.
    """
    is_path = isinstance(name, Path) or name.endswith(".toml") or "/" in name
    path = Path(name) if is_path else declaration(home.suites, str(name), "suite")
    own = read_toml(path).get("name")
    if not isinstance(own, str):
        return path  # reading it says what is wrong
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", own):
        raise InputError(f"{path}: name = {own!r}: becomes a file name; use letters, digits, dots and dashes")
    declared = home.suites / f"{own}.toml"
    if declared.is_file() and declared.resolve() != path.resolve() and declared.read_bytes() != path.read_bytes():
        raise InputError(
            f"{path}: name = {own!r}: {declared} is another suite of that name, and their records would mix; "
            f'rename yours, for example name = "my-{own}"'
        )
    return path


def find_suite(home: Home, name: str | Path) -> Suite:
    """The suite of that name in suites/, or in that TOML file (see `suite_path`)."""
    return load_suite(suite_path(home, name))


def choose(
    cells: Sequence[C], only: Sequence[str], fields: Sequence[str] = _FIELDS, words: Sequence[str] = _WORDS
) -> list[C]:
    """The cells that ``only`` names: words such as ``seqmoe`` or ``reference``, ``field=value`` pairs, or cell keys.

    Terms for the same field widen the choice, terms for different fields narrow it. A term that names nothing is an
    `InputError`. ``fields`` are those of the cells that can be named, ``words`` those that a bare word can name.
    """
    allowed: dict[str, set[str]] = {}
    for term in (part.strip() for text in only for part in text.split(",") if part.strip()):
        field, value = _parse(cells, term, fields, words)
        allowed.setdefault(field, set()).add(value)
    if not allowed:
        example = f"{fields[0]}={_value(cells[0], fields[0])}"
        raise InputError(f"--only {','.join(only)!r}: names nothing; give for example {example}, or leave it out")
    chosen = [cell for cell in cells if all(_value(cell, field) in values for field, values in allowed.items())]
    if not chosen:
        raise InputError(f"--only {','.join(only)}: no cell has all of these; leave one out")
    return chosen


def _parse(cells: Sequence[C], term: str, fields: Sequence[str], words: Sequence[str]) -> tuple[str, str]:
    field, equals, value = term.partition("=")
    if equals:
        if field not in fields:
            raise InputError(f"--only {term}: unknown field {field!r}; {nearest(field, fields)}")
        values = {_value(cell, field) for cell in cells}
        value = _number(field, value) if field in _NUMBERS else value
        if value not in values:
            raise InputError(f"--only {term}: no cell has it; {nearest(value, values)}")
        return field, value
    if any(cell.key == term for cell in cells):
        return "key", term
    for word in words:
        if any(_value(cell, word) == term for cell in cells):
            return word, term
    known = {_value(cell, word) for cell in cells for word in words} - {""}
    raise InputError(f"--only {term}: no cell has it; {nearest(term, known)}")


def _value(cell: Chosen, field: str) -> str:
    return str(getattr(cell, field))


def _number(field: str, text: str) -> str:
    try:
        return str(float(text))
    except ValueError:
        raise InputError(f"--only {field}={text}: not a number, for example 0.45") from None
