"""Protects the lowest versions: what `tox -e lowest` installs is what pyproject.toml promises to work with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_constraints_of_the_lowest_versions_are_the_projects_lower_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(re.fullmatch(r"([\w.-]+)>=([\d.]+)", one).groups() for one in project["dependencies"])
    lines = (ROOT / ".ci" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    lowest = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert lowest == bounds
