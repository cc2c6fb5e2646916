"""Studies: suites that are computed from routing traces, not by serving a model. What all kinds of them share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from seqmoe.spec.errors import InputError, nearest

T = TypeVar("T")
SCHEMA = 1
# The traces of the model that ships with the package; any other name is a file, a folder or a hub id.
REFERENCE = "reference"


class StudyCell(Protocol):
    """One point of a study. ``traces`` is the name of what it is computed from, never a path; see `trace_name`."""

    @property
    def suite(self) -> str:
        """Name of the suite."""

    @property
    def panel(self) -> str:
        """What the suite's blocks call the part of the figure that the cell belongs to."""

    @property
    def traces(self) -> str:
        """Name of the traces."""

    @property
    def key(self) -> str:
        """Twelve hex digits that identify the cell."""

    @property
    def label(self) -> str:
        """A short name for progress and tables."""

    @property
    def detail(self) -> str:
        """The label and what else tells a cell from its neighbours."""


class StudySuite(Protocol):
    """A declared study, whatever its kind."""

    @property
    def name(self) -> str:
        """Name of the suite, and of its file of records."""

    @property
    def title(self) -> str:
        """What it is about."""

    @property
    def figure(self) -> str:
        """The paper's figure or table that it reproduces."""

    @property
    def profile(self) -> Mapping[str, Any]:
        """Its profiles by their names."""

    def cells(self, profile: str, seed: int = 0, traces: str | None = None) -> Sequence[StudyCell]:
        """All cells of a profile; ``traces`` (a name) takes the place of those that the blocks declare."""

    def sources(self, profile: str) -> dict[str, str]:
        """Where the traces are that a profile's blocks declare, by their names."""


def cell_key(cell: Any) -> str:
    """Twelve hex digits over all fields of a cell; results are resumed by them."""
    return hashlib.sha256(json.dumps(dataclasses.asdict(cell), sort_keys=True).encode()).hexdigest()[:12]


def trace_name(source: str) -> str:
    """The name of a source of traces: its last part for a path (records are published, folders name people)."""
    return source if source == REFERENCE or "://" in source else Path(source).resolve().name


def named_sources(sources: Iterable[str]) -> dict[str, str]:
    """Sources by their names; two of one name are an `InputError`, since records could not tell them apart."""
    found: dict[str, str] = {}
    for source in sources:
        name = trace_name(source)
        if found.setdefault(name, source) != source:
            raise InputError(f"traces = {source!r} and {found[name]!r} have the same name; rename one of the files")
    return found


def profile_of(suite: str, profiles: dict[str, T], profile: str) -> T:
    """The profile of that name; an unknown one is an `InputError` with the nearest."""
    if profile not in profiles:
        raise InputError(f"suite {suite!r} has no profile {profile!r}; {nearest(profile, profiles)}")
    return profiles[profile]
