"""The short table: one line per cell, cells of a system that failed alike in one line together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seqmoe.harness.devices import CPU
from seqmoe.report import style
from seqmoe.report.facts import absences
from seqmoe.report.frame import DIFFERS, REFERENCE, SAME

_WORK = {
    "host": "{}", "model_title": "{}", "panel": "{}", "batch": "batch {}", "decode_tokens": "{} tokens",
    "dataset": "{}", "prompts": "{} prompts", "seed": "seed {}",
}  # fmt: skip
_NUMERIC = ("Residency", "tok/s", "Share of full load", "Hit rate")
_MISSING = "missing"
# Of the tokens' hash: enough to see which rows say the same; the data file has the whole of it.
_HASH_DIGITS = 8
_TRAFFIC = "Link, per token"
_KEPT_WHOLE = ("System", "Lane", "Residency", "tok/s")
_ALIKE = [*_WORK, "device", "lane", "hardware", "system_title", "status", "reason", "hint"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One place of the table: its text, what to sort it by, a shorter text for a terminal, and a small one below it."""

    text: str
    key: float | str
    short: str | None = None
    below: str = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line: its entries, whether they hold a result, and the workload (empty where the table has only one)."""

    entries: tuple[Entry, ...]
    ran: bool
    workload: str


@dataclass(frozen=True, slots=True)
class ShortTable:
    """Rows with one entry for each of ``headings``, the ``reasons`` of what did not run, and ``remarks`` on what did.

    An interval in square brackets is the 95 % one of the median over repeats.
    """

    headings: tuple[str, ...]
    rows: tuple[TableRow, ...]
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns are sorted as numbers."""
        return tuple(heading in (*_NUMERIC, _TRAFFIC) for heading in self.headings)

    def rich(self) -> RenderableType:
        """The table for a terminal of 80 columns, one for each workload, with the reasons below."""
        parts = [list(rows) for _, rows in itertools.groupby(self.rows, key=lambda row: row.workload)]
        tables = [piece for part in parts for piece in (self._part(part), Text())]
        return Group(*tables, *(Text(reason, style="dim") for reason in (*self.reasons, *self.remarks)))

    def _part(self, rows: list[TableRow]) -> Table:
        title = Text(rows[0].workload, style="bold") if rows[0].workload else None
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), title=title,
                      title_justify="left", header_style="bold")  # fmt: skip
        shown = [index for index, heading in enumerate(self.headings) if heading not in ("Note", "Workload", _TRAFFIC)]
        for index in shown:
            heading, number = self.headings[index], self.numeric[index]
            table.add_column(heading, justify="right" if number else "left", no_wrap=heading in _KEPT_WHOLE)
        lane, speed, note = (self.headings.index(heading) for heading in ("Lane", "tok/s", "Note"))
        for before, row in zip([None, *rows], rows, strict=False):
            if before and row.entries[lane].short != before.entries[lane].short:
                table.add_section()
            texts = [entry.text if entry.short is None else entry.short for entry in row.entries]
            if not row.ran:
                texts[speed] = row.entries[note].text
            table.add_row(*(texts[index] for index in shown), style=None if row.ran else "dim")
        return table


def short_table(summary: pd.DataFrame, remarks: Sequence[str] = ()) -> ShortTable:
    """The table of a `seqmoe.report.summary.summarise`; lanes stand in the order of the records, never summed over.

    ``remarks`` are what else there is to say of the records.
    """
    work = _workloads(summary)
    systems = {name: index for index, name in enumerate(style.in_order(summary["system_title"]))}
    lanes = {lane: index for index, lane in enumerate(dict.fromkeys(summary["lane"]))}
    works = {text: index for index, text in enumerate(dict.fromkeys(work.values()))}
    ran = summary["status"] == "ok"
    several = summary.loc[summary["lane"] == "measured", "device"].nunique() > 1
    groups = [summary.loc[[index]] for index in summary.index[ran]]
    groups += [rows for _, rows in summary[~ran].groupby(_ALIKE, sort=False)]

    def place(rows: pd.DataFrame) -> tuple[float, ...]:
        row, at = rows.iloc[0], rows.index[0]
        order = (
            lanes[row["lane"]], row["device"] == CPU, works[work[at]], row["status"] != "ok",
            systems[row["system_title"]],
        )  # fmt: skip
        return (*order, row["residency"], at)

    rows = [_row(group, work[group.index[0]], several) for group in sorted(groups, key=place)]
    workload = ("Workload",) if len(works) > 1 else ()
    headings = ("System", *workload, "Lane", *_NUMERIC, "Same answer", _TRAFFIC, "Note")
    return ShortTable(headings, tuple(rows), tuple(_reasons(summary)), (*remarks, *_remarks(summary)))


def _workloads(summary: pd.DataFrame) -> dict[int, str]:
    """What each row worked on, in words, as far as the rows differ in it."""
    varying = [key for key in _WORK if summary[key].nunique() > 1]
    return {
        index: ", ".join(_WORK[key].format(row[key]) for key in varying)
        for index, (_, row) in enumerate(summary.iterrows())
    }


def _row(rows: pd.DataFrame, workload: str, several_devices: bool) -> TableRow:
    row = rows.iloc[0]
    residencies = sorted(rows["residency"])
    span = "-".join(f"{100 * residency:.0f}" for residency in dict.fromkeys((residencies[0], residencies[-1]))) + "%"
    named = style.lane_text(row["lane"], row["device"])
    lane = named if row["hardware"] == "host" else f"{row['lane']}, {row['hardware']}"
    hits, answer, note = _hit_rate(row), _answer(row), _note(row)
    share = _with_interval(row, "share", 100.0, "%")
    # A line of its own: beside the system a predictor's name would take the room of the numbers.
    name = f"{row['system']}\n{row['predictor']}".strip()
    entries = (
        Entry(row["system_title"], row["system_title"], short=name, below=note),
        *((Entry(workload, workload),) if workload else ()),
        Entry(lane, lane, short=named if several_devices else row["lane"]),
        Entry(span, float(residencies[0])),
        Entry(_with_interval(row, "tok_s", 1.0, ""), _key(row["tok_s"])),
        Entry(share, _key(row["share"]), short=share.partition(" ")[0]),
        Entry(hits, _key(row["hit_rate"]), short="-" if hits == _MISSING else hits),
        Entry(answer, answer, below=row["tokens_sha256"][:_HASH_DIGITS]),
        Entry(_traffic(row), _key(row["bytes_on_demand"] + row["bytes_prefetched"])),
        Entry(note, note),
    )
    return TableRow(entries, row["status"] == "ok", workload)


def _key(value: float) -> float:
    return float(value) if np.isfinite(value) else -1.0


def _with_interval(row: pd.Series, metric: str, scale: float, unit: str) -> str:
    value, low, high = (scale * row[f"{metric}{part}"] for part in ("", "_low", "_high"))
    if not np.isfinite(value):
        return ""
    digits = 1 if value < 100 else 0
    text = f"{value:.{digits}f}{unit}"
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]" if np.isfinite(low) and low != high else text


def _hit_rate(row: pd.Series) -> str:
    if np.isfinite(row["hit_rate"]):
        return f"{row['hit_rate']:.1%}"
    return _MISSING if row["status"] == "ok" else ""


def _traffic(row: pd.Series) -> str:
    """Expert bytes over the link per output token, and what part of them was prefetched in vain."""
    moved = row["bytes_on_demand"] + row["bytes_prefetched"]
    if not np.isfinite(moved):
        return ""
    wasted = row["bytes_wasted"]
    return _size(moved) + (f", {_size(wasted)} in vain" if np.isfinite(wasted) and wasted > 0 else "")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _answer(row: pd.Series) -> str:
    if row["answer"] == DIFFERS:
        return f"no ({row['matched']:.0%})"
    return {SAME: "yes", REFERENCE: "itself"}.get(row["answer"], "")


def _note(row: pd.Series) -> str:
    if row["status"] != "ok":
        return str(row["status"]).replace("_", " ")
    return str(row["reason"])


def _reasons(summary: pd.DataFrame) -> list[str]:
    return [
        f"{absence.status} ({absence.systems}): {absence.reason}" + (f". {absence.hint}" if absence.hint else "")
        for absence in absences(summary)
    ]


def _remarks(summary: pd.DataFrame) -> list[str]:
    missing = summary[(summary["hit_note"] != "") & (summary["status"] == "ok")]
    return [
        f"no hit rate ({', '.join(dict.fromkeys(rows['system_title']))}): {note}"
        for note, rows in missing.groupby("hit_note", sort=False)
    ]
