"""The page: one HTML file with everything inside it, for a phone as for a wide screen, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from seqmoe.report.environments import AnyRecord, environments

_LABELS = {"verdict": "Verdicts"}


@dataclass(frozen=True, slots=True)
class Section:
    """One figure's part of the page; ``recorded`` is false while nothing was run for it.

    ``figure`` is the number of one of the paper's, or the name of what the paper does not have.
    """

    figure: str
    title: str
    body: Markup
    recorded: bool

    @property
    def name(self) -> str:
        """The section's id in the page, and the stem of its files."""
        return f"figure{self.figure}" if self.figure.isdigit() else self.figure

    @property
    def label(self) -> str:
        """The section's number for people."""
        return f"Figure {self.figure}" if self.figure.isdigit() else _LABELS.get(self.figure, "Beside the figures")


def render(sections: Sequence[Section], records: Sequence[AnyRecord], data: Sequence[str] = ()) -> str:
    """The page as text; it refers to nothing outside itself. ``data`` are names of the files that lie beside it."""
    return str(fill("page.html.j2", sections=sections, environments=environments(records), data=data))


def fill(template: str, **values: Any) -> Markup:
    """A template of this folder, filled in; everything but markup is escaped."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    templates = jinja2.Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters["commands"] = _commands
    return Markup(templates.get_template(template).render(values))


def _commands(text: str) -> Markup:
    """Escape a text, set what stands between backticks as code, and between double asterisks as bold."""
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe))
