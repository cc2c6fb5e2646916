"""A part of the site that is about one figure, and the templates that its HTML is made from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from seqmoe.report.site.table import plain

_LABELS = {"verdict": "Verdicts", "fullload": "Full load", "6-simulated": "Figure 6, simulated"}
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Section:
    """What the site says of one figure; ``recorded`` is false while nothing was run for it.

    ``figure`` is the number of one of the paper's, or the name of what the paper does not have.
    """

    figure: str
    title: str
    body: Markup
    recorded: bool

    @property
    def name(self) -> str:
        """The stem of its files."""
        return file_stem(self.figure)

    @property
    def label(self) -> str:
        """The section's number for people."""
        return f"Figure {self.figure}" if self.figure.isdigit() else _LABELS.get(self.figure, self.figure.capitalize())


def file_stem(figure: str) -> str:
    """The stem of a figure's files, by its number or name."""
    return f"figure{figure}" if figure[:1].isdigit() else figure


def fill(template: str, **values: Any) -> Markup:
    """A template of this folder or of the site's, filled in; everything but markup is escaped."""
    folders = jinja2.FileSystemLoader([_HERE, _HERE / "site"])
    templates = jinja2.Environment(loader=folders, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters["commands"] = commands
    templates.globals["plain"] = plain
    return Markup(templates.get_template(template).render(values))


def commands(text: str) -> Markup:
    """Escape a text, set what stands between backticks as code, and between double asterisks as bold."""
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe))
