"""Two children in lockstep: each benchmark is timed on one side and the other in turns, and suspects are run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from seqmoe.harness.against.judging import Difference, difference
from seqmoe.harness.against.sides import Side
from seqmoe.spec.errors import InputError

ROUNDS = 24
CLOCKS = ("cpu", "wall")
# What a side is timed for before the other's turn: short beside the time slices of whatever else runs.
_TURN_SECONDS = 0.03
# Of a call that takes long there are fewer turns, so that one benchmark takes no longer than this; at least eight, of
# which chance makes one side slower in all of them once in 256.
_BENCHMARK_SECONDS = 12.0
_LEAST_ROUNDS = 8
# A suspect must look slower in each of so many pairs of processes.
_PASSES = 3
_CHILD = Path(__file__).with_name("child.py")
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Other plugins of pytest time nothing and take long to load.
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


@dataclass(frozen=True, slots=True)
class Timed:
    """One benchmark: seconds of a call per round, by clock and side (``a`` is the old revision)."""

    name: str
    a: dict[str, list[float]]
    b: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One benchmark over all passes. ``differences`` are its passes' by clock; ``reason`` why it could not be timed."""

    name: str
    slower: bool
    passes: tuple[Timed, ...] = ()
    differences: dict[str, tuple[Difference, ...]] = field(default_factory=dict)
    reason: str = ""


class Child:
    """A process that runs one side's benchmarks; a context manager."""

    def __init__(self, side: Side, benchmarks: Path, log: Path) -> None:
        read, write = os.pipe()
        self.log = log
        self._log = log.open("w", encoding="utf-8")
        command = [sys.executable, str(_CHILD), str(side.site), str(benchmarks), str(write)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | _ENVIRONMENT
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT, pass_fds=(write,), text=True,
            env=environment, cwd=side.site,
        )  # fmt: skip
        os.close(write)
        self._events = os.fdopen(read, encoding="utf-8")

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._events.close()
        self._log.close()

    def event(self) -> dict[str, Any]:
        """The next thing that the child tells; an empty one when it has ended."""
        line = self._events.readline()
        return dict(json.loads(line)) if line else {}

    def tell(self, line: str) -> None:
        """A command; one to a child that has ended is lost."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def measure(self, loops: int, samples: int) -> dict[str, float]:
        """Seconds of a call, by clock."""
        self.tell(f"time {loops} {samples}")
        return self.event()


def compare_sides(
    a: Side,
    b: Side,
    benchmarks: Path,
    threshold: float,
    logs: Path,
    only: Sequence[str] = (),
    rounds: int = ROUNDS,
    say: Callable[[str], None] = lambda line: None,
) -> list[Outcome]:
    """Time ``benchmarks`` (b's files, for both) in turns; a benchmark is slower if it is in every one of three passes.

    ``only`` are parts of benchmarks' names. What a side cannot run is an outcome with its reason, never a regression.
    Raises `InputError` where ``only`` names nothing, ``RuntimeError`` where a side does not start.
    """
    logs.mkdir(parents=True, exist_ok=True)
    passes: dict[str, list[Timed]] = {}
    failed: dict[str, str] = {}

    for found in _one_pass(a, b, benchmarks, partial(chosen, only=only), logs / "pass1", rounds, say):
        if isinstance(found, Timed):
            passes[found.name] = [found]
        else:
            failed |= found
    for number in range(2, _PASSES + 1):
        suspects = [name for name, timed in passes.items() if len(timed) == number - 1 and _slower(timed, threshold)]
        if not suspects:
            break
        say(f"looked slower, again in new processes: {', '.join(suspects)}")
        again = _one_pass(a, b, benchmarks, _exactly(suspects), logs / f"pass{number}", rounds, say)
        for found in again:
            if isinstance(found, Timed):
                passes[found.name].append(found)
    outcomes = [_outcome(name, tuple(timed), threshold) for name, timed in passes.items()]
    return outcomes + [Outcome(name, False, reason=reason) for name, reason in failed.items()]


def chosen(names: list[str], only: Sequence[str]) -> list[str]:
    """The names that have one of ``only`` in them, all where it is empty; an `InputError` where none has."""
    found = [name for name in names if not only or any(part in name for part in only)]
    if not found:
        raise InputError(f"--only {' '.join(only)}: no benchmark has that in its name; there are {', '.join(names)}")
    return found


def _exactly(names: list[str]) -> Callable[[list[str]], list[str]]:
    return lambda _: names


def _one_pass(
    a: Side,
    b: Side,
    benchmarks: Path,
    choose: Callable[[list[str]], list[str]],
    log: Path,
    rounds: int,
    say: Callable[[str], None],
) -> Iterator[Timed | dict[str, str]]:
    """Every benchmark that ``choose`` leaves, timed, or its name and why it could not be."""
    sides = (("a", a), ("b", b))
    with ExitStack() as stack:
        children = {
            name: stack.enter_context(Child(side, benchmarks, log.with_name(f"{log.name}-{name}.log")))
            for name, side in sides
        }
        collected: dict[str, list[str]] = {}
        for name, child in children.items():
            event = child.event()
            if "collected" not in event:
                raise RuntimeError(f"the benchmarks do not start on side {name}; see {child.log}")
            collected[name] = event["collected"]
        asked = choose(collected["b"])
        common = [name for name in asked if name in set(collected["a"])]
        for child in children.values():
            child.tell(json.dumps(common))
        yield {name: f"cannot be run at {a.revision[:10]}" for name in asked if name not in common}
        for name in common:
            yield _time_one(name, children, rounds, say)


def _time_one(name: str, children: dict[str, Child], rounds: int, say: Callable[[str], None]) -> Timed | dict[str, str]:
    """One benchmark on both sides, which take turns at going first."""
    events = {side: child.event() for side, child in children.items()}
    unready = {side: event for side, event in events.items() if "ready" not in event}
    timed = Timed(name, {clock: [] for clock in CLOCKS}, {clock: [] for clock in CLOCKS})
    if not unready:
        loops = max(1, round(sum(event["loops"] for event in events.values()) / 2))
        once = min(event["seconds"] for event in events.values())
        samples = max(1, round(_TURN_SECONDS / (loops * once)))
        affordable = int(_BENCHMARK_SECONDS / (2 * loops * once * samples))
        unready = _take_turns(timed, children, loops, samples, min(rounds, max(_LEAST_ROUNDS, affordable)))
        if not unready:
            say(f"{name}: {_in_words(timed)}")
    reasons = []
    for side, child in children.items():
        if side not in unready:
            child.tell("next")
        over = unready.get(side) or child.event()
        if over.get("outcome") != "passed":
            reasons.append(f"{side}: {over.get('outcome', 'ended')} {over.get('reason', '')}".strip())
    return {name: "; ".join(reasons)} if reasons or unready else timed


def _take_turns(
    timed: Timed, children: dict[str, Child], loops: int, samples: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """Fill in the times of all rounds; by side, what was told in the place of one by a benchmark that failed."""
    for number in range(rounds):
        for side in ("ab", "ba")[number % 2]:
            found = children[side].measure(loops, samples)
            if not set(CLOCKS) <= found.keys():
                return {side: found}
            for clock in CLOCKS:
                getattr(timed, side)[clock].append(found[clock])
    return {}


def _slower(passes: Sequence[Timed], threshold: float) -> bool:
    """Whether all passes agree, by one and the same clock."""
    return any(all(one.slower(threshold) for one in _differences(passes, clock)) for clock in CLOCKS)


def _differences(passes: Iterable[Timed], clock: str) -> tuple[Difference, ...]:
    return tuple(difference(one.a[clock], one.b[clock]) for one in passes)


def _outcome(name: str, passes: tuple[Timed, ...], threshold: float) -> Outcome:
    slower = len(passes) == _PASSES and _slower(passes, threshold)
    return Outcome(name, slower, passes, {clock: _differences(passes, clock) for clock in CLOCKS})


def _in_words(timed: Timed) -> str:
    found = {clock: difference(timed.a[clock], timed.b[clock]) for clock in CLOCKS}
    return ", ".join(f"{clock} time x {one.ratio:.3f} (least x {one.least:.3f})" for clock, one in found.items())
