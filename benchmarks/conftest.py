"""Marks of the benchmarks: ``peer`` for what is not ours, so that a comparison of revisions leaves it out.

``asked`` is for what takes minutes and gigabytes: it runs only where its file's name is among the arguments.
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "peer: another's way to do the same, or a floor; not ours to slow down")
    config.addinivalue_line("markers", "asked: takes minutes and gigabytes; runs only when it is named")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    arguments = " ".join(map(str, config.invocation_params.args))
    for item in items:
        name = item.path.stem.removeprefix("test_")
        if item.get_closest_marker("asked") and name not in arguments:
            reason = f"takes minutes and gigabytes; run it by its name: nox -s bench -- --only {name}"
            item.add_marker(pytest.mark.skip(reason=reason))
