"""The site in a real browser, from disk: silent, whole, sortable, filtered, and never wider than its window."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from browser import MISSING, Page, find_browser, opened

CHROMIUM = find_browser()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

# The texts, or the keys to sort by, of a column of the rows that are shown.
_COLUMN = """Array.from(document.querySelectorAll("#%s tbody tr")).filter(row => !row.hidden)
.map(row => row.cells[%d].dataset.key)"""
_CLICK = """document.querySelectorAll("#%s thead button")[%d].click()"""
_TYPE = """(function () {
  const box = document.querySelector(".filter input");
  box.value = "%s";
  box.dispatchEvent(new Event("input"));
  return document.querySelector(".filter output").textContent;
})()"""


@pytest.fixture(scope="module")
def page():
    with opened(CHROMIUM) as browser:
        yield browser.page()


def column(page: Page, table: str, index: int) -> list[str]:
    return page.run(_COLUMN % (table, index))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_is_silent_asks_for_nothing_outside_and_fits_its_window(site: Path, page: Page, width, scheme):
    for path in sorted(site.glob("*.html")):
        page.requests.clear()
        page.complaints.clear()
        page.open(path, width, scheme=scheme)
        assert page.complaints == [], path.name
        assert path.resolve().as_uri() in page.requests
        assert [url for url in page.requests if not url.startswith((site.resolve().as_uri(), "data:"))] == [], path.name
        wide, window = page.run("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window == width, f"{path.name} is {wide} pixels wide in a window of {width}"


def test_a_heading_sorts_by_its_column_and_back_and_what_has_no_value_stays_below(site: Path, page: Page):
    page.open(site / "figure6.html")
    headings = page.run("Array.from(document.querySelectorAll('#cells thead button')).map(one => one.textContent)")
    speed = headings.index("tok/s")
    page.run(_CLICK % ("cells", speed))
    up = column(page, "cells", speed)
    numbers = [float(key) for key in up if key]
    assert len(set(numbers)) > 5 and numbers == sorted(numbers) and up.index("") == len(numbers)
    assert page.run('document.querySelectorAll("#cells [aria-sort=ascending]").length') == 1
    page.run(_CLICK % ("cells", speed))
    down = column(page, "cells", speed)
    assert [float(key) for key in down if key] == numbers[::-1] and down.index("") == len(numbers)
    page.run(_CLICK % ("cells", 0))
    names = [name for name in column(page, "cells", 0)[: len(numbers)]]
    assert names == sorted(names, key=str.lower)


def test_words_filter_rows_and_the_box_says_how_many_are_left(site: Path, page: Page):
    page.open(site / "figure6.html")
    everything = column(page, "cells", 0)
    assert page.run(_TYPE % "EMULATED lru") == f"4 of {len(everything)} rows"
    assert set(column(page, "cells", 0)) == {"LRU (FreeToken's policy)"}
    assert page.run(_TYPE % "no such words") == f"0 of {len(everything)} rows"
    assert page.run(_TYPE % "") == f"{len(everything)} rows" and column(page, "cells", 0) == everything


def test_choices_show_one_verdict_and_words_narrow_it(site: Path, page: Page):
    page.open(site / "verdicts.html")
    everything = len(column(page, "verdicts", 1))
    button = "document.querySelector(\".choices button[data-show='untested here']\")"
    page.run(f"{button}.click()")
    shown = column(page, "verdicts", 1)
    assert set(shown) == {"untested here"} and len(shown) < everything
    assert page.run(f"{button}.getAttribute('aria-pressed')") == "true"
    assert page.run(_TYPE % "untested nothing-is-called-so") == f"0 of {everything} rows"
    page.run('document.querySelector(".choices button").click()')
    page.run(_TYPE % "")
    assert len(column(page, "verdicts", 1)) == everything


def test_the_colours_follow_the_readers_scheme_and_a_print_has_no_controls(site: Path, page: Page):
    backs, inks = [], []
    for scheme in ("light", "dark"):
        page.open(site / "index.html", scheme=scheme)
        backs.append(page.run("getComputedStyle(document.body).backgroundColor"))
        inks.append(page.run("getComputedStyle(document.body).color"))
    assert len(set(backs)) == len(set(inks)) == 2
    page.open(site / "verdicts.html", scheme="dark", media="print")
    hidden = "Array.from(document.querySelectorAll('.top, .filter, .choices')).map(e => getComputedStyle(e).display)"
    assert set(page.run(hidden)) == {"none"}
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_screenshot_is_as_wide_as_its_window_and_shows_something(site: Path, page: Page, width):
    page.open(site / "figure6.html", width)
    picture = page.picture()
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (width, 900)
    assert len(picture) > 10_000
