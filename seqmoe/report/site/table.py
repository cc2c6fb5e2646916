"""A table of a page: it sorts by its headings, filters by words, and scrolls inside its own box."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """One place: its text, a small one below it, and what to sort it by (the text if not given; NaN sorts last)."""

    text: str
    key: float | str | None = None
    below: str = ""
    link: str = ""
    colour: str = ""
    wraps: bool = False
    best: bool = False

    @property
    def sorting(self) -> str:
        """What the script sorts by; empty stays below."""
        if isinstance(self.key, float) and not math.isfinite(self.key):
            return ""
        return self.text if self.key is None else str(self.key)


@dataclass(frozen=True, slots=True)
class Row:
    """One line; ``kind`` is what a group of choices shows it by, ``absent`` marks what gave no result."""

    cells: tuple[Cell, ...]
    kind: str = ""
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with one `Cell` for each of ``headings``; ``numbers`` are the columns set to the right.

    ``name`` is the table's id in its page, ``style`` a class of the style sheet.
    """

    name: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: tuple[int, ...] = ()
    style: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.headings):
                raise ValueError(f"{self.name}: {len(row.cells)} cells under {len(self.headings)} headings")


def plain(name: str, caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts whose first column is a name and whose others are numbers, sorted by what they begin with."""
    lines = [Row(tuple(Cell(text, _leading(text) if index else text) for index, text in enumerate(r))) for r in rows]
    return Table(name, caption, tuple(headings), tuple(lines), tuple(range(1, len(headings))))


def _leading(text: str) -> float | str:
    """The number that a text begins with ("84.6% [80, 90]", "1,234 ms"), else the text."""
    if text in ("-", "–"):
        return ""
    first = text.partition(" ")[0].replace(",", "").rstrip("%")
    try:
        return float(first)
    except ValueError:
        return text
