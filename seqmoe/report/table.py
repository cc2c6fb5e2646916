"""The short table: one line per cell, cells of a system that failed alike in one line together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seqmoe.report import style
from seqmoe.report.facts import absences
from seqmoe.report.frame import DIFFERS, REFERENCE, SAME

_WORK = ["host", "model_title", "panel", "batch", "dataset", "prompts", "decode_tokens", "seed"]
_ALIKE = [*_WORK, "lane", "hardware", "system_title", "status", "reason", "hint"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One place of the table: its text, what to sort it by, and a shorter text for a terminal."""

    text: str
    key: float | str
    short: str | None = None


@dataclass(frozen=True, slots=True)
class ShortTable:
    """``rows`` have one entry for each of ``headings``; ``ran`` says of each row whether it holds a result.

    An interval in square brackets is the 95 % one of the median over repeats.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    ran: tuple[bool, ...]
    reasons: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers."""
        return tuple(heading in _NUMERIC for heading in self.headings)

    def rich(self) -> RenderableType:
        """The table for a terminal of 80 columns, with the reasons of what did not run below it."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        shown = [index for index, heading in enumerate(self.headings) if heading != "Note"]
        for index in shown:
            heading, number = self.headings[index], self.numeric[index]
            table.add_column(heading, justify="right" if number else "left", no_wrap=heading in _KEPT_WHOLE)
        lane, speed, note = (self.headings.index(heading) for heading in ("Lane", "tok/s", "Note"))
        for at, (row, ran) in enumerate(zip(self.rows, self.ran, strict=True)):
            if at and row[lane].short != self.rows[at - 1][lane].short:
                table.add_section()
            texts = [entry.text if entry.short is None else entry.short for entry in row]
            if not ran:
                texts[speed] = row[note].text
            table.add_row(*(texts[index] for index in shown), style=None if ran else "dim")
        return Group(table, *(Text(reason, style="dim") for reason in ("", *self.reasons)))


_NUMERIC = ("Residency", "tok/s", "Share of full load", "Hit rate")
_MISSING = "missing"
_KEPT_WHOLE = ("System", "Lane", "Residency", "tok/s")


def short_table(summary: pd.DataFrame) -> ShortTable:
    """The table of a `seqmoe.report.summary.summarise`; lanes stand in the order of the records, never summed over."""
    several = len(summary.drop_duplicates(_COMPARED)) > 1
    systems = {name: index for index, name in enumerate(style.in_order(summary["system_title"]))}
    lanes = {lane: index for index, lane in enumerate(dict.fromkeys(summary["lane"]))}
    ran = summary["status"] == "ok"
    groups = [summary.loc[[index]] for index in summary.index[ran]]
    groups += [rows for _, rows in summary[~ran].groupby(_ALIKE, sort=False)]

    def place(rows: pd.DataFrame) -> tuple[float, ...]:
        row = rows.iloc[0]
        return lanes[row["lane"]], row["status"] != "ok", systems[row["system_title"]], row["residency"], rows.index[0]

    groups.sort(key=place)
    rows = [_row(group, several) for group in groups]
    return ShortTable(
        headings=("System", "Lane", *_NUMERIC, "Same answer", "Note", *(("Workload",) if several else ())),
        rows=tuple(rows),
        ran=tuple(group.iloc[0]["status"] == "ok" for group in groups),
        reasons=tuple(_reasons(summary)),
    )


def _row(rows: pd.DataFrame, several: bool) -> tuple[Entry, ...]:
    row = rows.iloc[0]
    residencies = sorted(rows["residency"])
    span = "-".join(f"{100 * residency:.0f}" for residency in dict.fromkeys((residencies[0], residencies[-1]))) + "%"
    lane = row["lane"] if row["hardware"] == "host" else f"{row['lane']}, {row['hardware']}"
    hits = _hit_rate(row)
    answer, note, share = _answer(row), _note(row), _with_interval(row, "share", 100.0, "%")
    work = f"{row['model_title']}, {row['panel']}, batch {row['batch']}, {row['decode_tokens']} tokens, {row['host']}"
    return (
        Entry(row["system_title"], row["system_title"], short=row["system"]),
        Entry(lane, lane, short=row["lane"]),
        Entry(span, float(residencies[0])),
        Entry(_with_interval(row, "tok_s", 1.0, ""), _key(row["tok_s"])),
        Entry(share, _key(row["share"]), short=share.partition(" ")[0]),
        Entry(hits, _key(row["hit_rate"]), short="-" if hits == _MISSING else hits),
        Entry(answer, answer),
        Entry(note, note),
        *((Entry(work, work),) if several else ()),
    )


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


def _answer(row: pd.Series) -> str:
    if row["answer"] == DIFFERS:
        return f"no ({row['matched']:.0%})"
    return {SAME: "yes", REFERENCE: "itself"}.get(row["answer"], "")


def _note(row: pd.Series) -> str:
    if row["status"] != "ok":
        return str(row["status"]).replace("_", " ")
    missing = f"no hit rate: {row['hit_note']}" if row["hit_note"] else ""
    return "; ".join(part for part in (row["reason"], missing) if part)


def _reasons(summary: pd.DataFrame) -> list[str]:
    reasons = [
        f"{absence.status} ({absence.systems}): {absence.reason}" + (f". {absence.hint}" if absence.hint else "")
        for absence in absences(summary)
    ]
    missing = summary[(summary["hit_note"] != "") & (summary["status"] == "ok")]
    for note, rows in missing.groupby("hit_note", sort=False):
        reasons.append(f"no hit rate ({', '.join(dict.fromkeys(rows['system_title']))}): {note}")
    return reasons
