"""Marks of the benchmarks: ``peer`` for what is not ours, so that a comparison of revisions leaves it out."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "peer: another's way to do the same, or a floor; not ours to slow down")
