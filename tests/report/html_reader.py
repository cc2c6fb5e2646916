"""What a page is made of: tags, attributes and text, and every end tag that closes nothing."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Collects tags in order, attributes and text; ``wrong`` are end tags out of place, ``open`` what stays open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.order: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    @property
    def tags(self) -> Counter[str]:
        return Counter(self.order)

    @property
    def ids(self) -> Counter[str]:
        return Counter(value for _, name, value in self.attributes if name == "id")

    @property
    def links(self) -> set[str]:
        """What it refers to: files, and places in this page."""
        return {value for _, name, value in self.attributes if name in ("src", "href", "xlink:href", "action", "data")}

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.order.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.order.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.words.append(data)
