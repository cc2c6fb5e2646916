"""The site in reports/sample: everything that it refers to is there, and nothing lies there that nothing refers to."""

from __future__ import annotations

import re

from html_reader import Page
from report_samples import HOME

SAMPLE = HOME.work / "reports" / "sample"


def test_every_link_leads_to_a_file_and_every_file_is_led_to():
    led = set()
    for path in SAMPLE.glob("*.html"):
        links = {link for link in Page(path.read_text(encoding="utf-8")).links if not link.startswith(("#", "data:"))}
        missing = [link for link in links if not (SAMPLE / link).is_file()]
        assert missing == [], path.name
        led |= links
    readme = (HOME.work / "README.md").read_text(encoding="utf-8")
    pictures = set(re.findall(r"reports/sample/([\w.-]+)", readme))
    assert pictures and all((SAMPLE / name).is_file() for name in pictures)
    assert {path.name for path in SAMPLE.iterdir()} - led - pictures == set()


def test_only_the_readme_s_pictures_are_png():
    readme = (HOME.work / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in SAMPLE.glob("*.png")} == set(re.findall(r"reports/sample/([\w.-]+\.png)", readme))
