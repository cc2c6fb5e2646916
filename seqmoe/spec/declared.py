"""Strict reading of declarations: TOML tables become frozen dataclasses, and nothing unknown passes in silence."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar, Union

from seqmoe.spec.errors import InputError, nearest

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; a missing or malformed one is an `InputError` that names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def declaration(folder: Path, name: str, kind: str) -> Path:
    """The file ``folder/<name>.toml``; an unknown name is an `InputError` that names the nearest declared one."""
    path = folder / f"{name}.toml"
    declared = sorted(file.stem for file in folder.glob("*.toml"))
    if name not in declared:
        hint = nearest(name, declared) if declared else f"{folder} declares none"
        raise InputError(f"{kind} {name!r} is not declared in {folder}; {hint}")
    return path


def declared_name(folder: Path, text: str, kind: str) -> str:
    """The name of the file in ``folder`` that ``text`` is, or begins; an `InputError` for none, and for several."""
    names = sorted(file.stem for file in folder.glob("*.toml"))
    found = [name for name in names if name.startswith(text)] if text else []
    if text in names:
        return text
    if len(found) > 1:
        raise InputError(f"{kind} {text!r}: begins several names; give one of {', '.join(found)}")
    return found[0] if found else declaration(folder, text, kind).stem


def build(cls: type[T], table: dict[str, Any], where: str) -> T:
    """Build the dataclass ``cls`` from ``table``; ``where`` (file and section) prefixes every error.

    Unknown and missing keys, wrong types and violated invariants (a ``ValueError`` of ``__post_init__``) are all
    `InputError`. Nested dataclasses are built from nested tables, lists become tuples.
    """
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table, got {table!r}")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in fields:
            raise InputError(f"{where}: unknown key {key!r}; {nearest(key, fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise InputError(f"{where}: key {name!r} is missing")
    values = {key: _convert(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [o for o in typing.get_args(hint) if o is not type(None)]
        return None if value is None else _convert(options[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where} = {value!r}: expected a list")
        inner = typing.get_args(hint)[0]
        if set(map(type, value)) <= _plain_types(inner):  # records hold thousands of time stamps
            return tuple(value)
        return tuple(_convert(inner, item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise InputError(f"{where} = {value!r}: expected a table")
        inner = typing.get_args(hint)[1]
        return {key: _convert(inner, item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    raise InputError(f"{where} = {value!r}: expected {getattr(hint, '__name__', hint)}")


def _plain_types(hint: Any) -> set[type]:
    union = typing.get_origin(hint) in (Union, types.UnionType)
    return {option for option in (typing.get_args(hint) if union else (hint,)) if isinstance(option, type)}
