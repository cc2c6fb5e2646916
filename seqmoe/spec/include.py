"""Suites that take in others: ``include = "other.toml"``, or a list of files, relative to the file that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from seqmoe.spec.declared import build, read_toml
from seqmoe.spec.errors import InputError

T = TypeVar("T")
KEY = "include"


def load_with_includes(cls: type[T], path: Path) -> T:
    """Read and validate a suite of any kind, with the blocks of the suites that it includes in front of its own.

    An included file is a whole suite, valid by itself: errors in it name it. Of its profiles the blocks are taken in,
    and ``repeats`` and ``[regression]`` where the including suite has none; cells bear the including suite's name.
    Raises `InputError` for a circle of includes, for a suite of another kind, and for two that differ in ``repeats``.
    """
    return build(cls, _read(cls, path, ()), str(path))


def _read(cls: type[Any], path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    here = path.resolve()
    if here in above:
        circle = " -> ".join(file.name for file in (*above[above.index(here) :], here))
        raise InputError(f"{path}: include: goes round in a circle ({circle}); take one of them out")
    table = read_toml(path)
    for name in reversed(_names(table.pop(KEY, []), path)):
        other = path.parent / name
        try:
            included = _read(cls, other, (*above, here))
        except InputError as error:
            raise _told(error, path, name, other) from None
        if included.get("study") != table.get("study"):
            kinds = " and ".join(str(one.get("study", "systems")) for one in (table, included))
            raise InputError(f"{path}: include = {name!r}: the suites are of different kinds ({kinds})")
        build(cls, included, str(other))
        _merge(table, included, f"{path}: include = {name!r}")
    return table


def _names(value: Any, path: Path) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f'{path}: include = {value!r}: expected a file, or a list of files, such as "quick.toml"')
    if len(set(names)) < len(names):
        raise InputError(f"{path}: include = {value!r}: names a file twice")
    return names


def _told(error: InputError, path: Path, name: str, other: Path) -> InputError:
    """A file that is not there is the fault of the one that names it."""
    return InputError(f"{path}: include = {name!r}: {error}") if not other.is_file() else error


def _merge(table: dict[str, Any], included: dict[str, Any], where: str) -> None:
    profiles = table.setdefault("profile", {})
    if not isinstance(profiles, dict):
        return  # building it says what is wrong
    for profile, content in included["profile"].items():
        own = profiles.setdefault(profile, {})
        if not isinstance(own, dict):
            continue
        blocks = own.get("block", [])
        if isinstance(blocks, list):
            own["block"] = [*content["block"], *blocks]
        if "repeats" in content and own.setdefault("repeats", content["repeats"]) != content["repeats"]:
            raise InputError(
                f"{where}: profile.{profile}: repeats = {content['repeats']} there and {own['repeats']} here or in "
                "another include; all cells of a profile are repeated alike"
            )
    if "regression" in included:
        table.setdefault("regression", included["regression"])
