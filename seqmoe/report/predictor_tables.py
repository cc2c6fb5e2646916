"""Two tables of predictors: every one of a group beside the others, and the rows of an ablation against the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from seqmoe.report import style
from seqmoe.report.predictions import K3, Group, Judged, Value, offsets

_RESIDENCY = 0.25


@dataclass(frozen=True, slots=True)
class Box:
    """One place of a table: its text, a small one below, what to sort it by, whether it is the best of its column."""

    text: str
    below: str = ""
    key: float | str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class PredictorTable:
    """Rows with one `Box` for each of ``headings``; the first is the name, with its ``colours``. ``short`` are those
    columns that a terminal shows.
    """

    title: str
    about: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Box, ...], ...]
    colours: tuple[str, ...]
    short: tuple[int, ...]

    def rich(self) -> RenderableType:
        """The table for a terminal."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for index in self.short:
            table.add_column(self.headings[index], justify="right" if index else "left", no_wrap=bool(index))
        for row in self.rows:
            table.add_row(*(Text(row[i].text, style="bold" if row[i].best else "") for i in self.short))
        return Lines(Text(self.title, style="bold"), Text(self.about, style="dim"), table, Text())


def predictors_table(group: Group) -> PredictorTable:
    """Every predictor: recall at k .. k+4, Seq-8, Seq-L1, on misses, calibration, size and cost per token."""
    judged = group.predictors
    columns = [[_recall(one.recall(offset), small=offset == K3) for one in judged] for offset in range(len(offsets()))]
    columns.append([_recall(one.recall(which="seq8")) for one in judged])
    long = [one.recall(which="long") for one in judged]
    if any(value.known for value in long):
        columns.append([_recall(value) for value in long])
    columns.append([_recall(one.on_misses(_RESIDENCY)) for one in judged])
    # The early router looks a layer ahead, the others a token: it is not of their contest.
    rivals = [index for index, one in enumerate(judged) if one.kind != "early_router"]
    for column in columns:
        _mark_best(column, rivals, most=True)
    errors = [Box(f"{one.ece():.3f}", key=one.ece()) for one in judged]
    _mark_best(errors, rivals, most=False)
    columns += [errors, [_count(one) for one in judged], _costs(judged), [_made(one) for one in judged]]
    headings = ["Predictor", *offsets(), "Seq-8, k+3"]
    headings += ["Seq-L1, k+3"] if any(value.known for value in long) else []
    headings += [f"On misses, {_RESIDENCY:.0%}", "ECE", "Parameters", "Per token", "Training"]
    names = [Box(one.title, key=one.title) for one in judged]
    title = f"Every predictor on {group.source}"
    about = f"{group.shape}; {group.size}"
    wanted = ("Predictor", "k", "k+3", "Seq-8, k+3", f"On misses, {_RESIDENCY:.0%}", "ECE", "Per token")
    return _table(title, about, headings, [names, *columns], [style.PREDICTORS[one.kind][1] for one in judged], wanted)


def ablation_table(group: Group) -> PredictorTable | None:
    """One thing changed at a time, against the first row; None without an ablation."""
    judged = group.ablation
    if len(judged) < 2:
        return None
    base = judged[0].recall()
    columns: list[list[Box]] = [
        [Box(one.record.cell.variant, key=one.record.cell.variant) for one in judged],
        [_recall(one.recall(0), small=False) for one in judged],
        [_recall(one.recall()) for one in judged],
        [_difference(one.recall(), base, first=index == 0) for index, one in enumerate(judged)],
        [_recall(one.recall(which="seq8"), small=False) for one in judged],
        [_lost(one) for one in judged],
        [Box(f"{one.ece():.3f}", key=one.ece()) for one in judged],
        [_count(one) for one in judged],
        _costs(judged),
        [_made(one) for one in judged],
    ]
    for index in (1, 2, 4):
        _mark_best(columns[index], range(len(judged)), most=True)
    headings = ["SeqMoE's Mamba2", "k", "k+3", "Against first row", "Seq-8, k+3", "Lost over 8 steps", "ECE"]
    headings += ["Parameters", "Per token", "Training"]
    minutes = "/".join(f"{m:g}" for m in sorted({one.record.cell.minutes for one in judged}))
    title = f"One thing changed at a time, on {group.source}"
    read = [float(one.training.get("tokens") or 0) / 1e6 for one in judged]
    # What a minute is worth depends on the row and on what else the machine did: the table says what each one read.
    about = f"{minutes} minutes of training each, in which they read {min(read):.2f} to {max(read):.2f} M tokens"
    wanted = ("SeqMoE's Mamba2", "k+3", "Against first row", "Seq-8, k+3", "Lost over 8 steps", "Training")
    return _table(title, about, headings, columns, [style.PREDICTORS[one.kind][1] for one in judged], wanted)


def direct_head(group: Group) -> tuple[str, float, float, float, float] | None:
    """What the direct head captures of future use, beside the rollout, and what each costs per token in microseconds.

    Returns the predictor's title, captured by rollout and by head, and their costs; None where no record tells.
    """
    for one in (*group.predictors, *group.ablation):
        use = one.record.observations.get("future_use")
        if use and "one_step_us" in one.cost:
            return one.title, use["rollout"], use["direct"], one.cost["rollout_us"], one.cost["one_step_us"]
    return None


def _table(
    title: str,
    about: str,
    headings: list[str],
    columns: Sequence[list[Box]],
    colours: list[str],
    wanted: tuple[str, ...],
) -> PredictorTable:
    short = tuple(headings.index(name) for name in wanted)
    return PredictorTable(title, about, tuple(headings), tuple(zip(*columns, strict=True)), tuple(colours), short)


def _recall(value: Value, small: bool = True) -> Box:
    if not value.known:
        return Box("–", below="", key=-1.0)
    below = f"{100 * value.low:.1f} to {100 * value.high:.1f}" if small and math.isfinite(value.low) else ""
    return Box(f"{100 * value.value:.1f}%", below, value.value)


def _mark_best(column: list[Box], among: Sequence[int], most: bool) -> None:
    known = [key for index in among if isinstance(key := column[index].key, float) and key >= 0]
    if len(known) < 2:
        return
    best = max(known) if most else min(known)
    for index in among:
        if column[index].key == best:
            column[index] = replace(column[index], best=True)


def _difference(value: Value, base: Value, first: bool) -> Box:
    if first or not (value.known and base.known):
        return Box("", key=0.0 if first else -99.0)
    points = 100 * (value.value - base.value)
    # Intervals that meet do not tell the two apart.
    apart = value.low > base.high or value.high < base.low
    return Box(f"{points:+.1f}", "" if apart else "within the intervals", points)


def _lost(one: Judged) -> Box:
    near, far = one.recall(), one.recall(which="seq8")
    if not (near.known and far.known):
        return Box("–", key=-1.0)
    return Box(f"{100 * (near.value - far.value):.1f}", key=near.value - far.value)


def _count(one: Judged) -> Box:
    count = one.cost.get("parameters")
    if not count:
        return Box("–", key=0.0)
    return Box(f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count / 1e3:.1f} k", key=float(count))


def _costs(judged: Sequence[Judged]) -> list[Box]:
    """Time of a forecast with its rollout, and below it that of the next step alone."""
    column = []
    for one in judged:
        near, far = one.cost.get("one_step_us"), one.cost.get("rollout_us")
        if near is None or far is None:
            column.append(Box("–", key=-1.0))
        else:
            column.append(Box(time_text(far), f"{time_text(near)} one step", float(far)))
    return column


def time_text(microseconds: float) -> str:
    """Microseconds in the unit that people would use."""
    return f"{microseconds:.0f} µs" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms"


def _made(one: Judged) -> Box:
    if not one.record.cell.trained:
        return Box("counts", key=0.0)
    tokens = one.training.get("tokens")
    below = f"{tokens / 1e6:.2f} M tokens" if tokens else ""
    minutes = float(one.training.get("minutes") or one.record.cell.minutes)
    return Box(f"{minutes:.1f} min", below, minutes)
