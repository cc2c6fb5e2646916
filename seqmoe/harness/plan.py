"""The order of a sweep: every round visits all cells once, so that systems are interleaved and drift hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from seqmoe.harness.conditions import since_change
from seqmoe.harness.failures import deserves_another_try
from seqmoe.harness.fingerprint import software
from seqmoe.harness.link_check import may_pass_later
from seqmoe.harness.record import Record, Status
from seqmoe.spec.suite import Cell

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat of one cell. Runs of the same ``group`` can be served by one worker process."""

    cell: Cell
    repeat: int
    group: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` in order; ``obstacles`` are cells that cannot be started, each to be recorded once; ``kept`` is done."""

    runs: tuple[Run, ...]
    obstacles: tuple[tuple[Cell, Status], ...]
    kept: int


def make_plan(
    cells: Sequence[Cell],
    repeats: int,
    history: Mapping[str, Sequence[Record]],
    group_of: Callable[[Cell], str],
    obstacle_of: Callable[[Cell], Status | None],
    environment_of: Callable[[Cell], Mapping[str, Any]],
    resume: bool = True,
) -> Plan:
    """Order what ``history`` (records of each cell key, in the order of writing) does not have yet.

    ``environment_of`` a cell is what its record would carry; a record of other weights or of another device counts for
    nothing.
    """
    wanted: dict[str, set[int]] = {}
    obstacles = []
    for cell in cells:
        environment = environment_of(cell)
        past = since_change(history.get(cell.key, ()), environment) if resume else []
        obstacle = obstacle_of(cell)
        if obstacle is None:
            wanted[cell.key] = set(pending(past, repeats, environment))
        elif not any(record.status.ok for record in past) and (not past or past[-1].status != obstacle):
            # What has once been measured stays: an obstacle of today does not take its place.
            obstacles.append((cell, obstacle))
    runs = order([cell for cell in cells if cell.key in wanted], repeats, group_of)
    chosen = tuple(run for run in runs if run.repeat in wanted[run.cell.key])
    return Plan(chosen, tuple(obstacles), len(cells) * repeats - len(chosen) - len(obstacles) * repeats)


def pending(past: Sequence[Record], repeats: int, environment: Mapping[str, Any]) -> list[int]:
    """Repeats that a cell still needs.

    A failure fills its cell: it is tried again only if what was missing has been installed, or the software (packages,
    revision) is no longer the one that failed, or, once, if it was killed from outside. A busy machine is no failure of
    the cell.
    """
    if past and not past[-1].status.ok and not may_pass_later(past[-1]) and not deserves_another_try(past):
        last = past[-1]
        mended = last.status.kind == "not_installed" or software(last.environment) != software(dict(environment))
        if not mended:
            return []
    done = {record.repeat for record in past if record.status.ok}
    return [repeat for repeat in range(repeats) if repeat not in done]


def order(cells: Sequence[Cell], repeats: int, group_of: Callable[[Cell], str]) -> list[Run]:
    """All repeats of all cells, round by round.

    Cells of a group stand together, so that one worker serves them. Groups, and cells within a group, start at another
    place each round. In the first one full load comes first in its group: the others' answers are held to it.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.system != "full"):
        groups.setdefault(group_of(cell), []).append(cell)
    names = list(dict.fromkeys(group_of(cell) for cell in cells))
    runs = []
    for repeat in range(repeats):
        for name in _rotated(names, repeat):
            members = groups[name]
            for cell in _rotated(members, repeat * len(members) // repeats):
                runs.append(Run(cell, repeat, name))
    return runs


def _rotated(items: Sequence[T], by: int) -> list[T]:
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]
