"""Prompts of a data set, as token ids: a declared one of suites/datasets, or a person's own file of JSON lines."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from seqmoe.spec.dataset import Dataset, dataset_file, load_dataset
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home

T = TypeVar("T")
_OWN_FIELDS = ("text", "messages.0.content")


class Unavailable(Exception):
    """Something has to be fetched or installed first. ``hint`` is the command."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def load_prompts(home: Home, name: str, count: int, seed: int = 0) -> list[str]:
    """The first ``count`` prompts of a data set; another ``seed`` than 0 shuffles them first.

    ``name`` is a declaration of suites/datasets, or the path of a ``.jsonl`` file whose lines hold ``text`` (or
    ``messages``, of which the first is taken). Raises `InputError` with file and line for anything wrong in a file, and
    `Unavailable` for a set of the hub that is not on this machine.
    """
    if name.endswith(".jsonl"):
        return _pick(read_prompt_file(Path(name)), count, seed, name)
    dataset = load_dataset(home, name)
    if dataset.file:
        path = dataset_file(home, dataset)
        return _pick(read_prompt_file(path, (dataset.field,)), count, seed, str(path))
    rows = _pick(_hub_rows(dataset), count, seed, dataset.hub_id)
    return [_prompt_of(dict(row), (dataset.field,), f"{dataset.hub_id} [{dataset.split}]") for row in rows]


def read_prompt_file(path: Path, fields: Iterable[str] = _OWN_FIELDS) -> list[str]:
    """The prompt of every line of a JSON-lines file: the first of ``fields`` that the line has."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # splitlines() would also cut at U+2028 inside a text
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a data set of suites/datasets or a file of JSON lines") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give a file of JSON lines") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error}") from None
    texts = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            texts.append(_prompt_of(_row(line, f"{path}:{number}"), tuple(fields), f"{path}:{number}"))
    if not texts:
        raise InputError(f"{path}: holds no prompts; every line is an object with {' or '.join(fields)}")
    return texts


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}; repair the line") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, got {line[:40]!r}")
    return row


def _prompt_of(row: dict[str, Any], fields: tuple[str, ...], where: str) -> str:
    for field in fields:
        value: Any = row
        for step in field.split("."):
            if isinstance(value, list) and step.isdigit() and int(step) < len(value):
                value = value[int(step)]
            else:
                value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str) and value:
            if any("\ud800" <= letter <= "\udfff" for letter in value):
                raise InputError(f"{where}: {field} holds half of a surrogate pair; write the whole character")
            return value
        if value is not None:
            raise InputError(f"{where}: {field} = {value!r}: expected a text that is not empty")
    raise InputError(f"{where}: has no {' or '.join(fields)}; its keys: {', '.join(row)}")


def _pick(items: Sequence[T], count: int, seed: int, where: str) -> list[T]:
    """``count`` items in order, of a shuffled set where a seed is given; without reading those that are not taken."""
    if len(items) < count:
        raise InputError(f"{where}: prompts = {count}: it holds only {len(items)}; ask for fewer")
    order = list(range(len(items)))
    if seed:
        random.Random(seed).shuffle(order)
    return [items[index] for index in order[:count]]


def _hub_rows(dataset: Dataset) -> Sequence[dict[str, Any]]:
    if importlib.util.find_spec("datasets") is None:
        raise Unavailable(f"data set {dataset.hub_id} needs the package 'datasets'", "pip install 'seqmoe[collect]'")
    datasets = importlib.import_module("datasets")
    try:
        rows: Sequence[dict[str, Any]] = datasets.load_dataset(
            dataset.hub_id, dataset.config or None, split=dataset.split
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        hint = f"on a machine with a network: hf download --repo-type dataset {dataset.hub_id}"
        raise Unavailable(f"data set {dataset.hub_id} cannot be loaded: {error}", hint) from None
    return rows
