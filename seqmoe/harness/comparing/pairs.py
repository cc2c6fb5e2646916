"""Which cells of two sides stand against each other: the same cell, or two systems on the same workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seqmoe.harness.comparing.sides import SYSTEM, Side, host_of
from seqmoe.harness.comparing.work import same_work
from seqmoe.harness.conditions import model_digest
from seqmoe.harness.record import Record
from seqmoe.spec.suite import Cell


@dataclass(frozen=True, slots=True)
class Pair:
    """All repeats of one cell on both sides. ``a`` and ``b`` are not empty; ``host`` is a's."""

    label: str
    host: str
    a: tuple[Record, ...]
    b: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """What can be compared, and sentences on what cannot."""

    pairs: tuple[Pair, ...]
    remarks: tuple[str, ...]


def pair_cells(a: Side, b: Side) -> Pairs:
    """Set the cells of two sides against each other, machine by machine where both have records of the same one.

    Sides without a common machine are compared across machines, which a remark says. Cells whose model had other
    weights are left out and counted.
    """
    common = set(a.hosts) & set(b.hosts)
    remarks, found, other_weights = [], [], 0
    if not common:
        remarks.append(f"different machines: {', '.join(a.hosts)} and {', '.join(b.hosts)}")
    left, right = _by_cell(a.records, bool(common)), _by_cell(b.records, bool(common))
    matched: set[tuple[str, str]] = set()
    for key, mine in left.items():
        for other, theirs in _partners(a.kind, key, mine, right):
            matched |= {("a", "/".join(key)), ("b", "/".join(other))}
            if _differ(mine, theirs):
                other_weights += 1
                continue
            found.append(Pair(_label(a.kind, mine[0].cell, theirs[0].cell), host_of(mine[0]), mine, theirs))
    if other_weights:
        remarks.append(f"left out because the model's weights differ: {counted_cells(other_weights)}")
    sides = Counter(side for side, _ in matched)
    for name, side, cells in ((a.name, "a", left), (b.name, "b", right)):
        if len(cells) > sides[side]:
            remarks.append(f"without a counterpart: {counted_cells(len(cells) - sides[side])} of {name}")
    dirty = [side.name for side in (a, b) if any(_dirty(record) for record in side.records)]
    if dirty and a.kind == b.kind != SYSTEM:
        remarks.append(f"made with uncommitted changes, at least in part: {', '.join(dirty)}")
    return Pairs(tuple(found), tuple(remarks))


def _by_cell(records: Iterable[Record], by_host: bool) -> dict[tuple[str, str], tuple[Record, ...]]:
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((host_of(record) if by_host else "", record.cell_key), []).append(record)
    return {key: tuple(repeats) for key, repeats in found.items()}


def _partners(
    kind: str, key: tuple[str, str], mine: tuple[Record, ...], cells: dict[tuple[str, str], tuple[Record, ...]]
) -> Iterator[tuple[tuple[str, str], tuple[Record, ...]]]:
    if kind != SYSTEM:
        if key in cells:
            yield key, cells[key]
        return
    for other, theirs in cells.items():
        if other[0] == key[0] and same_work(mine[0].cell, theirs[0].cell):
            yield other, theirs


def _label(kind: str, a: Cell, b: Cell) -> str:
    if kind != SYSTEM:
        return a.detail
    own = b if a.system == "full" else a
    modes = " ".join(dict.fromkeys(word for word in (a.execution, b.execution, a.predictor, b.predictor) if word))
    where = f", {modes}" if modes else ""
    return f"{own.model} {own.residency:.0%} {own.lane}, batch {own.batch}, {own.decode_tokens} tokens{where}"


def _differ(a: tuple[Record, ...], b: tuple[Record, ...]) -> bool:
    digests = {model_digest(record.environment) for record in (*a, *b)} - {None}
    return len(digests) > 1


def _dirty(record: Record) -> bool:
    git = record.environment.get("git")
    return isinstance(git, dict) and bool(git.get("dirty"))


def counted_cells(count: int) -> str:
    """A number of cells in words."""
    return f"{count} cell{'' if count == 1 else 's'}"
