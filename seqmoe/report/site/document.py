"""One page of the site, and how it becomes HTML with the ways to all others around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from seqmoe.report.page import fill
from seqmoe.report.site.navigation import Link, groups_of, neighbours

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Document:
    """A page: its ``file``, what stands above and below its title, and where the navigation names it.

    ``group`` is one of `seqmoe.report.site.navigation.GROUPS`, or `NOWHERE` for a page that others lead to; ``label``
    is its short name there; ``pending`` says that nothing was run for it yet.
    """

    file: str
    title: str
    eyebrow: str | Markup
    body: Markup
    group: str = ""
    label: str = ""
    pending: bool = False

    @property
    def link(self) -> Link:
        """The way to this page."""
        return Link(self.file, self.label or self.title, self.title, str(self.eyebrow), self.group, self.pending)


def render(documents: Sequence[Document]) -> dict[str, str]:
    """The text of every page by its file; no page refers to anything but files of this site."""
    links = [document.link for document in documents]
    style, script = (Markup((_FOLDER / name).read_text(encoding="utf-8")) for name in ("style.css", "script.js"))
    pages = {}
    for document in documents:
        before, after = neighbours(links, document.file)
        page = fill(
            "page.html.j2",
            page=document,
            groups=groups_of(links, document.file),
            before=before,
            after=after,
            style=style,
            script=script,
        )
        pages[document.file] = str(page)
    return pages
