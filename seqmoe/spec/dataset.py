"""Prompt sets as declared in suites/datasets: a file beside the declaration, or a set of the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.declared import build, declaration, read_toml
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Dataset:
    """One prompt set.

    ``file`` names JSON lines beside the declaration; otherwise ``hub_id`` with ``config`` and ``split`` names a set for
    `datasets.load_dataset`. ``field`` is the key that holds the prompt; dots descend into a record and a number picks
    from a list (``conversations.0.value``).
    """

    schema: int
    name: str
    title: str
    licence: str
    source: str
    field: str
    file: str = ""
    hub_id: str = ""
    config: str = ""
    split: str = ""

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the declaration")
        if bool(self.file) == bool(self.hub_id):
            raise ValueError("give either file (JSON lines) or hub_id (a Hugging Face data set), not both or none")
        if self.hub_id and not self.split:
            raise ValueError("split is missing: name the split of the hub data set, for example 'test'")
        if self.file and (self.config or self.split):
            raise ValueError("config and split belong to hub_id; a file has neither")
        for key in ("licence", "source", "field"):
            if not getattr(self, key):
                raise ValueError(f"{key} is empty")


def load_dataset(home: Home, name: str) -> Dataset:
    """Read suites/datasets/<name>.toml; an unknown name is an `InputError` with the nearest."""
    path = declaration(home.suites / "datasets", name, "dataset")
    dataset = build(Dataset, read_toml(path), str(path))
    if dataset.name != name:
        raise InputError(f"{path}: name = {dataset.name!r}: must be {name!r}, like the file")
    return dataset


def dataset_file(home: Home, dataset: Dataset) -> Path:
    """The JSON lines of a dataset that has a file."""
    return home.suites / "datasets" / dataset.file
