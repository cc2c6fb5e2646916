"""Which page leads to which: the bar that every page has, and the neighbours of a figure or table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

OVERVIEW, FIGURES, TABLES = "", "Figures", "Tables"
# The bar's parts in their order; the first has no heading of its own.
GROUPS = (OVERVIEW, FIGURES, TABLES)
# Of a page that stands in no part of the bar.
NOWHERE = "-"


@dataclass(frozen=True, slots=True)
class Link:
    """A way to a page: its ``label`` in the bar, its full ``title``, and what it is ("Figure 6")."""

    file: str
    label: str
    title: str
    eyebrow: str
    group: str
    pending: bool = False
    current: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A part of the bar."""

    name: str
    links: tuple[Link, ...]


def groups_of(links: Sequence[Link], current: str) -> list[Group]:
    """The bar of the page ``current``: its parts that have pages."""
    marked = [replace(link, current=link.file == current) for link in links]
    parts = [Group(name, tuple(link for link in marked if link.group == name)) for name in GROUPS]
    return [part for part in parts if part.links]


def neighbours(links: Sequence[Link], current: str) -> tuple[Link | None, Link | None]:
    """The pages before and after a figure or table among their own; none for any other page."""
    own = [link for link in links if link.group in (FIGURES, TABLES)]
    place = next((index for index, link in enumerate(own) if link.file == current), None)
    if place is None:
        return None, None
    return (own[place - 1] if place else None), (own[place + 1] if place + 1 < len(own) else None)
