"""A home of its own for every test: declarations, a tokenizer, and no weights."""

from __future__ import annotations

import json

import pytest
from harness_samples import write_home


@pytest.fixture
def home(tmp_path):
    return write_home(tmp_path / "home")


@pytest.fixture
def served(home):
    """What the fake workers of this test were asked, in order."""
    log = home.work / "served.jsonl"

    def read():
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return read
