"""Systems on the same work, and the same work on several machines, with a verdict for every pair."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from seqmoe.harness.comparing.judging import METRICS, Judged, judge
from seqmoe.harness.comparing.pairs import Pair, pair_cells
from seqmoe.harness.comparing.sides import HOST, Side, host_of
from seqmoe.harness.comparing.work import work_of
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import Summary
from seqmoe.report.frame import system_title
from seqmoe.spec.suite import LEAST_THRESHOLD, Cell

_METRIC = METRICS["decode_tok_s"]
# What was computed or is stretched in time alike on all machines says nothing of a machine.
_TIMED = ("measured", "emulated")


@dataclass(frozen=True, slots=True)
class Beside:
    """``b`` beside ``a`` on one piece of work; ``a`` is not the faster one where both have a figure."""

    work: str
    lane: str
    a: str
    b: str
    judged: Judged

    @property
    def ratio(self) -> Summary | None:
        """B's speed over a's."""
        return self.judged.ratio


def systems_beside(records: Iterable[Record]) -> list[Beside]:
    """Every two systems that did the same work on the same machine at the same residency, timed."""
    found = []
    for cells in _by_work(records).values():
        for one, other in itertools.combinations(cells.values(), 2):
            judged = _judge(one, other)
            if judged is not None and judged.ratio is not None:
                if judged.ratio.median < 1:
                    one, other = other, one
                    judged = _judge(one, other) or judged
                cell = one[0].cell
                found.append(Beside(_work(cell), _lane(one[0]), _name(cell), _name(other[0].cell), judged))
    return found


def hosts_beside(records: Iterable[Record]) -> list[Beside]:
    """Every cell that was measured on two machines."""
    hosts: dict[str, list[Record]] = {}
    for record in records:
        if record.cell.lane == "measured":
            hosts.setdefault(host_of(record), []).append(record)
    found = []
    for a, b in itertools.combinations(hosts, 2):
        for pair in pair_cells(Side(a, HOST, tuple(hosts[a])), Side(b, HOST, tuple(hosts[b]))).pairs:
            judged = judge(pair, _METRIC, LEAST_THRESHOLD)
            if judged is not None and judged.ratio is not None:
                cell = pair.a[0].cell
                found.append(Beside(f"{_name(cell)}, {_work(cell)}", cell.lane, a, b, judged))
    return found


def comparison_data(found: Sequence[Beside]) -> pd.DataFrame:
    """One line for each pair."""
    return pd.DataFrame([_values(one) for one in found])


def _by_work(records: Iterable[Record]) -> dict[tuple[object, ...], dict[str, list[Record]]]:
    groups: dict[tuple[object, ...], dict[str, list[Record]]] = {}
    for record in records:
        if record.cell.lane in _TIMED:
            work = (host_of(record), *work_of(record.cell).values())
            groups.setdefault(work, {}).setdefault(record.cell_key, []).append(record)
    return groups


def _judge(a: Sequence[Record], b: Sequence[Record]) -> Judged | None:
    return judge(Pair("", host_of(a[0]), tuple(a), tuple(b)), _METRIC, LEAST_THRESHOLD)


def _name(cell: Cell) -> str:
    return f"{system_title(cell)}, {cell.execution}" if cell.execution else system_title(cell)


def _work(cell: Cell) -> str:
    held = "all resident" if cell.residency == 1 else f"{cell.residency:.0%} resident"
    return f"{cell.suite}: {cell.model}, {held}, batch {cell.batch}, {cell.decode_tokens} tokens"


def _lane(record: Record) -> str:
    device = str(record.environment.get("device", ""))
    return f"measured, {device.upper()}" if record.cell.lane == "measured" and device else record.cell.lane


def _values(one: Beside) -> dict[str, Any]:
    judged = one.judged
    values: dict[str, Any] = {"work": one.work, "lane": one.lane, "a": one.a, "b": one.b}
    for name, summary in _summaries(judged):
        values |= {name: summary.median, f"{name}_low": summary.low, f"{name}_high": summary.high}
    return values | {"p_value": judged.p_value, "verdict": judged.verdict, "note": judged.note}


def _summaries(judged: Judged) -> Iterator[tuple[str, Summary]]:
    for name, summary in (("a_tok_s", judged.a), ("b_tok_s", judged.b), ("ratio", judged.ratio)):
        if summary is not None:
            yield name, summary
