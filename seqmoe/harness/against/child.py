"""One revision's benchmarks, timed when the parent asks: ``python child.py SITE BENCHMARKS EVENTS``.

A program of its own, started by its path with nothing of seqmoe imported, so that ``SITE`` alone decides which
revision's package is timed. It tells the parent which benchmarks there are, is told which to run, and runs them by
pytest with a ``benchmark`` fixture that, instead of timing, says that its function is ready and then obeys lines of
stdin: ``time LOOPS SAMPLES`` or ``next``. Events are JSON lines on the file descriptor ``EVENTS``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

# A sample is at least this long, so that reading the clocks does not count.
_SAMPLE_SECONDS = 2e-3
_MARKS = ("benchmark(group): the group that a benchmark is set out in", "peer: not ours, a peer or a floor")


class Lockstep:
    """The ``benchmark`` fixture of a child; what pytest-benchmark's own gives a test, as far as ours use it."""

    def __init__(self, name: str, tell: Callable[[dict[str, Any]], None]) -> None:
        self._name, self._tell = name, tell
        self.group = ""
        self.extra_info: dict[str, Any] = {}
        self.stats = SimpleNamespace(stats=SimpleNamespace(median=float("nan")))

    def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Be timed as often as the parent asks; returns what the function returns."""

        def run() -> Any:
            return function(*arguments, **named)

        result = run()
        begin = time.perf_counter()
        run()
        once = max(time.perf_counter() - begin, 1e-9)
        self.stats.stats.median = once
        self._tell({"ready": self._name, "seconds": once, "loops": max(1, round(_SAMPLE_SECONDS / once))})
        for line in sys.stdin:
            command, *numbers = line.split()
            if command == "next":
                break
            self._tell(_measure(run, *map(int, numbers)))
        return result

    def pedantic(self, function: Callable[..., Any], args: Any = (), kwargs: Any = None, **_: Any) -> Any:
        """As `__call__`: rounds are the parent's."""
        return self(function, *args, **(kwargs or {}))


def _measure(run: Callable[[], Any], loops: int, samples: int) -> dict[str, float]:
    """Seconds of a call by two clocks: the least of all samples, the calling thread's own time and the wall's."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        cpu, wall = [], []
        for _ in range(samples):
            cpu_begin, begin = time.thread_time_ns(), time.perf_counter_ns()
            for _ in range(loops):
                run()
            wall.append(time.perf_counter_ns() - begin)
            cpu.append(time.thread_time_ns() - cpu_begin)
    finally:
        if collecting:
            gc.enable()
    return {"cpu": min(cpu) / loops / 1e9, "wall": min(wall) / loops / 1e9}


class Plugin:
    """Tells the parent which benchmarks there are and how each ended."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell

    def pytest_configure(self, config: pytest.Config) -> None:
        """The marks that benchmarks bear."""
        for mark in _MARKS:
            config.addinivalue_line("markers", mark)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out peers and floors, which are no code of ours, and all that the parent does not choose."""
        own = [item for item in items if item.get_closest_marker("peer") is None]
        self._tell({"collected": [_name(item) for item in own]})
        chosen = set(json.loads(sys.stdin.readline() or "[]"))
        items[:] = [item for item in own if _name(item) in chosen]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """One event when an item is over: after its call, or after a set-up that went wrong."""
        report = (yield).get_result()
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            self._tell({"over": _name(item), "outcome": report.outcome, "reason": _reason(report)})

    @pytest.fixture
    def benchmark(self, request: pytest.FixtureRequest) -> Lockstep:
        """Stands in for pytest-benchmark's."""
        return Lockstep(_name(request.node), self._tell)


def _reason(report: Any) -> str:
    """One line on what went wrong, empty where nothing did."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):  # a skipped one: file, line, reason
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
    return lines[0] if lines else ""


def _name(item: pytest.Item) -> str:
    """File and test, without folders: ``test_schedule.py::test_decision[core]``."""
    return item.nodeid.rpartition("/")[2]


def main(site: str, benchmarks: str, events: int) -> int:
    """Run; returns pytest's exit code."""
    # An editable installation finds its own package before any path does.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
    sys.path.insert(0, site)
    # Nobody else may write to it: what benchmarks print goes to stdout.
    stream = os.fdopen(events, "w", buffering=1, encoding="utf-8")

    def tell(event: dict[str, Any]) -> None:
        stream.write(json.dumps(event) + "\n")

    options = ["-q", "-s", "-p", "no:benchmark", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    places = ["-c", os.devnull, "--rootdir", benchmarks, benchmarks]
    return int(pytest.main([*options, *places], plugins=[Plugin(tell)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
