"""Records of full load as rows of one kind of work: values over the repeats, agreement, and where the time went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seqmoe.harness import metrics, same_answer
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import Summary, summarize
from seqmoe.report import style
from seqmoe.report.frame import system_title
from seqmoe.report.stacks import PARTS
from seqmoe.spec.system import SYSTEMS


@dataclass(frozen=True, slots=True)
class Row:
    """One system: its values over the repeats, or the ``reason`` why there are none.

    ``agreement`` is with the greedy tokens of our own full load; ``shares`` are of decode time by the names of `PARTS`,
    empty for a system without our timers.
    """

    system: str
    execution: str
    title: str
    tok_s: tuple[float, ...]
    ttft_s: tuple[float, ...]
    agreement: str
    threads: str
    version: str
    shares: dict[str, float]
    reason: str = ""

    def summary(self, metric: str) -> Summary | None:
        """Median and interval of ``tok_s`` or ``ttft_s``; None where nothing ran."""
        values = getattr(self, metric)
        return summarize(values) if values else None

    @property
    def step_ms(self) -> float:
        """Milliseconds of a decode step."""
        return 1e3 / float(np.median(self.tok_s))


@dataclass(frozen=True, slots=True)
class Group:
    """Systems that did the same work on one host, in drawing order."""

    about: str
    rows: tuple[Row, ...]

    @property
    def ours(self) -> Row | None:
        """Our fastest mode."""
        ran = [row for row in self.rows if row.system in SYSTEMS and row.tok_s]
        return max(ran, key=lambda row: float(np.median(row.tok_s)), default=None)

    def mode(self, execution: str) -> Row | None:
        """Our full load in one mode, if it ran."""
        found = [row for row in self.rows if row.system in SYSTEMS and row.execution == execution and row.tok_s]
        return found[0] if found else None


def groups_of(records: Iterable[Record]) -> list[Group]:
    """One group for each host and kind of work."""
    works: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        host = str(record.environment.get("host", "unknown host"))
        works.setdefault((host, *same_answer.workload(record.cell)), []).append(record)
    return [_group(found) for found in works.values()]


def _group(records: Sequence[Record]) -> Group:
    first = records[0]
    cells: dict[str, list[Record]] = {}
    for record in records:
        cells.setdefault(record.cell_key, []).append(record)
    full = [r for r in records if r.status.ok and r.cell.system == same_answer.FULL]
    # In the mode that the system has by itself, where it ran.
    own = [r for r in full if r.cell.execution in ("", SYSTEMS[same_answer.FULL].execution)]
    reference = next(reversed(own or full), None)
    rows = [_row(found, reference) for found in cells.values()]
    order = style.in_order(row.title for row in rows)
    cell = first.cell
    about = (
        f"{cell.model}, {cell.prompts} prompts of {cell.dataset}, {cell.decode_tokens} tokens each, "
        f"batch {cell.batch}, {first.environment.get('device', 'unknown device')}"
    )
    return Group(about, tuple(sorted(rows, key=lambda row: order.index(row.title))))


def _row(records: Sequence[Record], reference: Record | None) -> Row:
    good = [record for record in records if record.status.ok]
    cell, stats = records[0].cell, good[-1].observations.stats if good else {}
    title = system_title(cell) + (f", {cell.execution}" if cell.execution else "")
    tok_s = [value for record in good if isinstance(value := metrics.decode_tok_s(record), float)]
    ttft = [value for record in good if isinstance(value := metrics.ttft_s(record), float)]
    return Row(
        system=cell.system,
        execution=cell.execution,
        title=title,
        tok_s=tuple(tok_s),
        ttft_s=tuple(ttft),
        agreement=_agreement(good, reference),
        threads=str(stats.get("threads", "")),
        version=str(stats.get("version", "")),
        shares=_shares(good),
        reason="" if good else str(records[-1].status),
    )


def _agreement(good: Sequence[Record], reference: Record | None) -> str:
    """The worst of the repeats."""
    if not good:
        return ""
    if reference is None:
        return "full load was not run"
    if reference.cell_key == good[0].cell_key:
        return "itself"
    found = [same_answer.compare(record, reference) for record in good]
    known = [answer for answer in found if isinstance(answer, same_answer.Answer)]
    if len(known) < len(found):
        return next(str(answer.reason) for answer in found if isinstance(answer, metrics.Missing))
    worst = min(known, key=lambda answer: answer.common_prefix)
    if worst.same:
        return "all tokens"
    matched = worst.common_prefix / reference.cell.decode_tokens
    return f"{worst.identical:.0%} of prompts, {matched:.0%} of tokens"


def _shares(good: Sequence[Record]) -> dict[str, float]:
    timed = [record.observations.stats for record in good if "timed_steps" in record.observations.stats]
    if not timed:
        return {}
    seconds = {part: float(np.median([stat[f"{part}_seconds"] for stat in timed])) for part in PARTS}
    return {part: value / sum(seconds.values()) for part, value in seconds.items()}
