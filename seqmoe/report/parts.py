"""From records to the part of a report that is one figure: its section, its sheet, its data, its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from seqmoe.harness.conditions import newest_only
from seqmoe.harness.record import Record
from seqmoe.harness.studies.record import PredictionRecord, ReplayRecord, StudyRecord
from seqmoe.report import replays
from seqmoe.report.behind import behind
from seqmoe.report.environments import AnyRecord
from seqmoe.report.facts import Fact, facts
from seqmoe.report.figure1 import Figure1
from seqmoe.report.figure2 import Figure2
from seqmoe.report.figure3 import Figure3
from seqmoe.report.figure4 import Figure4
from seqmoe.report.figure6 import SIMULATED, Figure6
from seqmoe.report.figure6_simulated import Figure6Simulated
from seqmoe.report.figure7 import Figure7
from seqmoe.report.figure8 import Figure8
from seqmoe.report.figure9 import Figure9
from seqmoe.report.findings import sentence2, sentence8
from seqmoe.report.frame import model_title, records_frame
from seqmoe.report.fullload import FullLoad
from seqmoe.report.fullload_section import HEADINGS_FULLLOAD, rows_fullload, section_fullload
from seqmoe.report.pace import pace
from seqmoe.report.page import Section
from seqmoe.report.paper import claims, figure6_bars
from seqmoe.report.prediction_sections import section2, section8
from seqmoe.report.predictions import groups_of
from seqmoe.report.predictor_tables import ablation_table, predictors_table
from seqmoe.report.replay_findings import sentence3, sentences7
from seqmoe.report.replay_plots import handles
from seqmoe.report.replay_sections import section3, section7
from seqmoe.report.replay_tables import replay_table
from seqmoe.report.section1 import HEADINGS_1, rows1, section1
from seqmoe.report.section6 import section6, section6_simulated
from seqmoe.report.sheet import sheet_of
from seqmoe.report.step_sections import HEADINGS_4, HEADINGS_9, rows4, rows9, section4, section9, terminal_table
from seqmoe.report.summary import summarise
from seqmoe.report.table import ShortTable, short_table
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class Part:
    """One figure of a report, made from ``records``.

    ``drawn`` is false while nothing was run, ``always`` says that its picture is written even so. ``finding`` is what
    it shows, in a sentence, and ``facts`` are its few numbers. ``table`` is for a terminal, None where another part's
    has it all; ``short`` is figure 6's table of cells.
    """

    figure: str
    drawn: bool
    records: Sequence[AnyRecord]
    section: Section
    sheet: Callable[[], Figure]
    data: Callable[[], pd.DataFrame]
    table: RenderableType | None
    finding: str = ""
    facts: Sequence[Fact] = ()
    short: ShortTable | None = None
    always: bool = False


def first_of(sentences: Iterable[str]) -> str:
    """The first sentence, empty if there is none."""
    return next(iter(sentences), "")


def part6(records: Sequence[Record], home: Home) -> Part:
    """Figure 6. Records of earlier weights are left out and counted."""
    comparable = newest_only(records)
    chosen = list(comparable.records)
    frame = records_frame(chosen, home)
    summary = summarise(frame)
    figure = Figure6(summary, figure6_bars(home), home)
    remarks = [*pace(frame), *behind(summary), *comparable.remarks]
    short = short_table(summary, remarks)
    section = section6(figure, summary, home, remarks)
    return Part(
        "6", bool(chosen), chosen, section, figure.figure, figure.table, short.rich(), first_of(pace(frame)),
        facts(summary[summary["lane"] != SIMULATED], home), short, always=True,
    )  # fmt: skip


def part6_simulated(records: Sequence[Record], home: Home) -> Part:
    """Figure 6's simulated cells; their lines in a terminal are figure 6's."""
    chosen = [record for record in newest_only(records).records if record.cell.lane == SIMULATED]
    figure = Figure6Simulated(summarise(records_frame(chosen, home)), figure6_bars(home), home)
    return Part(
        "6-simulated", bool(chosen), chosen, section6_simulated(figure), figure.figure, figure.table, None, always=True
    )


def part1(records: Sequence[Record], home: Home) -> Part:
    """Figure 1."""
    chosen = list(newest_only(records).records)
    figure = Figure1(chosen, claims(home), load_model(home, "qwen3-30b-a3b-fp8"))
    words = [Text(sentence) for sentence in figure.sentences()]
    table = Group(terminal_table(HEADINGS_1, rows1(figure)), *words)
    return Part(
        "1",
        bool(figure.rows),
        chosen,
        section1(figure),
        figure.figure,
        figure.table,
        table,
        first_of(figure.sentences()),
    )


def part4(records: Sequence[Record], home: Home) -> Part:
    """Figure 4."""
    chosen = list(newest_only(records).records)
    figure = Figure4(chosen, claims(home), lambda name: model_title(home, name))
    words = [Text(sentence) for sentence in figure.sentences()]
    table = Group(terminal_table(HEADINGS_4, rows4(figure)), *words)
    return Part(
        "4",
        bool(figure.rows),
        chosen,
        section4(figure),
        figure.figure,
        figure.table,
        table,
        first_of(figure.sentences()),
    )


def part_fullload(records: Sequence[Record], home: Home) -> Part:
    """Full load beside other systems, which is no figure of the paper."""
    chosen = list(newest_only(records).records)
    figure = FullLoad(chosen)
    words = [Text(sentence) for sentence in figure.sentences()]
    table = Group(terminal_table(HEADINGS_FULLLOAD, rows_fullload(figure)), *words)
    section = section_fullload(figure)
    finding = first_of(figure.sentences())
    return Part("fullload", bool(figure.groups), chosen, section, figure.figure, figure.table, table, finding)


def part9(records: Sequence[Record], home: Home) -> Part:
    """Figure 9."""
    chosen = list(newest_only(records).records)
    figure = Figure9(chosen, claims(home))
    words = [Text(sentence) for sentence in figure.sentences()]
    table = Group(terminal_table(HEADINGS_9, rows9(figure)), *words)
    return Part(
        "9",
        bool(figure.rows),
        chosen,
        section9(figure),
        figure.figure,
        figure.table,
        table,
        first_of(figure.sentences()),
    )


def part8(records: Sequence[StudyRecord], home: Home) -> Part:
    """Figure 8."""
    kept = [record for record in records if isinstance(record, PredictionRecord)]
    figure = Figure8(groups_of(kept), claims(home))
    bands = [(f"On {group.source}", figure.panels(group)) for group in figure.groups]
    lines: list[RenderableType] = []
    for group in figure.groups:
        lines += [table.rich() for table in (predictors_table(group), ablation_table(group)) if table is not None]
        lines += [Text(sentence8(figure, group)), Text()]
    return Part(
        "8",
        bool(figure.groups),
        kept,
        section8(figure),
        lambda: sheet_of(bands or [("", [figure.printed()])]),
        figure.table,
        Group(*lines),
        first_of(sentence8(figure, group) for group in figure.groups),
    )


def part2(records: Sequence[StudyRecord], home: Home) -> Part:
    """Figure 2."""
    kept = [record for record in records if isinstance(record, PredictionRecord)]
    figure = Figure2(groups_of(kept), claims(home))
    bands = [(f"On {group.source}", figure.panels(group)) for group in figure.groups]
    words = [Text(f"On {group.source}: {sentence2(figure, group)}") for group in figure.groups]
    return Part(
        "2",
        bool(figure.groups),
        kept,
        section2(figure),
        lambda: sheet_of(bands or [("", [figure.printed()])]),
        figure.table,
        Group(*words),
        first_of(sentence2(figure, group) for group in figure.groups),
    )


def part3(records: Sequence[StudyRecord], home: Home) -> Part:
    """Figure 3."""
    kept = [record for record in records if isinstance(record, ReplayRecord)]
    figure = Figure3(replays.groups_of(kept), claims(home))
    bands = [(f"On {group.source}", figure.panels(group)) for group in figure.groups]
    lines: list[RenderableType] = []
    for group in figure.groups:
        lines += [replay_table(group).rich(), Text(sentence3(figure, group)), Text()]
    plots = [plot for _, panels in bands for plot in panels]
    return Part(
        "3",
        bool(figure.groups),
        kept,
        section3(figure),
        lambda: sheet_of(bands, handles(plots)),
        figure.table,
        Group(*lines),
        first_of(sentence3(figure, group) for group in figure.groups),
    )


def part7(records: Sequence[StudyRecord], home: Home) -> Part:
    """Figure 7."""
    kept = [record for record in records if isinstance(record, ReplayRecord)]
    figure = Figure7(replays.groups_of(kept), claims(home))
    bands = [(f"On {group.source}", figure.panels(group)) for group in figure.groups]
    lines: list[RenderableType] = []
    for group in figure.groups:
        lines += [replay_table(group).rich(), *(Text(sentence) for sentence in sentences7(group)), Text()]
    shown = bands or [("", [figure.printed()])]
    plots = [plot for _, panels in shown for plot in panels]
    return Part(
        "7",
        bool(figure.groups),
        kept,
        section7(figure),
        lambda: sheet_of(shown, handles(plots)),
        figure.table,
        Group(*lines),
        first_of(sentence for group in figure.groups for sentence in sentences7(group)),
    )
