"""The page's parts on predictors: figures 2 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from seqmoe.report import findings, style
from seqmoe.report.figure2 import Figure2
from seqmoe.report.figure8 import OURS, Figure8
from seqmoe.report.page import Section, fill
from seqmoe.report.plot import Plot
from seqmoe.report.predictions import Group
from seqmoe.report.predictor_tables import PredictorTable, ablation_table, direct_head, predictors_table, time_text
from seqmoe.report.svg import plot_svg

TITLE_2 = "Does the order of tokens tell which experts come next?"
TITLE_8 = "How many of the experts that a token needs are known before it comes"
_MARKS = {
    "o": '<circle cx="13" cy="9" r="4.5"/>', "s": '<path d="M9 5h8v8H9z"/>', "v": '<path d="M8 5h10l-5 9z"/>',
    "^": '<path d="M8 13h10l-5-9z"/>', "D": '<path d="M13 3.5l5.5 5.5-5.5 5.5L7.5 9z"/>',
    "P": '<path d="M11 4h4v3h3v4h-3v3h-4v-3H8V7h3z"/>', "": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a legend: a marker with its colour, or a kind of line."""

    name: str
    colour: str = ""
    mark: str = ""
    look: str = ""


def section8(figure: Figure8) -> Section:
    """Figure 8: recall of every predictor, tables, and what follows from them."""
    groups = []
    for index, group in enumerate(figure.groups):
        tables = [table for table in (predictors_table(group), ablation_table(group)) if table is not None]
        legend = [_predictor(one.kind) for one in group.predictors]
        legend += [Entry("next token (Seq-1)", look="solid"), Entry("eight steps (Seq-8)", look="dashed")]
        values = _group(group, figure.panels(group), f"f8-{index}", tables, legend)
        values |= {
            "facts": findings.facts8(figure, group),
            "sentence": findings.sentence8(figure, group),
            "remarks": _remarks(group),
        }
        groups.append(values)
    return study_section("8", TITLE_8, groups, [figure.printed()])


def section2(figure: Figure2) -> Section:
    """Figure 2: the probe's curves with and without order."""
    groups = []
    for index, group in enumerate(figure.groups):
        legend = [entry("as decoded", style.ORDERED, "o"), entry("shuffled", style.SHUFFLED, "s")]
        values = _group(group, figure.panels(group), f"f2-{index}", [], legend)
        values |= {
            "facts": findings.facts2(figure, group),
            "sentence": findings.sentence2(figure, group),
            "remarks": [],
        }
        groups.append(values)
    return study_section("2", TITLE_2, groups, [figure.printed()])


def _group(
    group: Group, panels: Sequence[Plot], prefix: str, tables: list[PredictorTable], legend: list[Entry]
) -> dict[str, Any]:
    with style.theme():
        pictures = [Markup(plot_svg(panel, f"{prefix}-{index}")) for index, panel in enumerate(panels)]
    return {
        "heading": f"On {group.source}",
        "about": f"{group.source[0].upper()}{group.source[1:]}: {group.shape}; {group.size}.",
        "legend": legend,
        "panels": pictures,
        "tables": tables,
    }


def study_section(
    figure: str, title: str, groups: list[dict[str, Any]], printed: list[Plot], template: str = "prediction.html.j2"
) -> Section:
    """The section of a study: ``groups`` are what `study.html.j2` reads; ``printed`` is drawn where there are none."""
    suite = f"fig{figure}"
    with style.theme():
        pictures = (
            [Markup(plot_svg(plot, f"f{figure}-paper-{i}")) for i, plot in enumerate(printed)] if not groups else []
        )
    asked = {
        "": "on the reference model's own traces",
        " -- --traces FILE": "on yours: a file, a store or an hf:// address",
        " -- --profile full": "trained for longer",
    }
    commands = "\n".join(f"{f'nox -s reproduce-{suite}{more}':44}# {what}" for more, what in asked.items())
    body = fill(
        template,
        suite=suite,
        groups=groups,
        printed=pictures,
        commands=commands,
    )
    return Section(figure, title, body, bool(groups))


def _predictor(kind: str) -> Entry:
    title, colour, marker = style.PREDICTORS[kind]
    return entry(title, colour, marker)


def entry(name: str, colour: str, marker: str, look: str = "solid") -> Entry:
    """A line with a marker, dashed or not."""
    line = "M1 8h7v2H1zM10 8h6v2h-6zM18 8h7v2h-7z" if look == "dashed" else "M1 8h24v2H1z"
    return Entry(name, colour, Markup(f'<g fill="currentColor"><path d="{line}"/>{_MARKS[marker]}</g>'))


def _remarks(group: Group) -> list[str]:
    remarks = []
    ours = group.find(OURS)
    if group.ablation and ours is not None and group.ablation[0].record.cell.minutes < ours.record.cell.minutes:
        brief, whole = (one.record.cell.minutes for one in (group.ablation[0], ours))
        remarks.append(
            f"The second table's rows were trained for {brief:g} minutes each, not {whole:g}: they tell what learns "
            f"faster, which need not be what ends higher. Minutes are not tokens: compare rows that read about as many."
        )
    direct = direct_head(group)
    if direct is not None:
        title, rollout, head, rollout_us, head_us = direct
        remarks.append(
            f"Beyond the paper: a head that tells each expert's discounted future use at once. Of the use that the k+3 "
            f"best experts of each layer could hold over the next eight steps, {title} captures {rollout:.1%} by the "
            f"rollout ({time_text(rollout_us)} a token) and {head:.1%} by the head ({time_text(head_us)})."
        )
    remarks += [f"{absent.title}: {absent.status}, {absent.reason}" for absent in group.absent]
    missing = [one.title for one in group.predictors if not one.recall(which="seq8").known]
    if missing:
        remarks.append(f"No Seq-8 ({', '.join(missing)}): it cannot look further than the next step.")
    if group.predictors and not group.predictors[0].recall(which="long").known:
        remarks.append("No Seq-L1: " + group.predictors[0].recall(which="long").missing + ".")
    return remarks
