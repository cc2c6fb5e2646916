"""Figure 6's part of the page."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from seqmoe.report import style
from seqmoe.report.facts import absences, facts, workloads
from seqmoe.report.figure6 import Figure6
from seqmoe.report.page import Section, fill
from seqmoe.report.panel import Panel
from seqmoe.report.svg import panel_svg
from seqmoe.report.table import ShortTable
from seqmoe.spec.paths import Home
from seqmoe.spec.system import SYSTEMS

TITLE = "How much of full-load speed is left when most experts wait in host memory"
_MARKS = {"unsupported": "cross", "not_installed": "ring"}


def section6(figure: Figure6, summary: pd.DataFrame, table: ShortTable, home: Home) -> Section:
    """The figure observed, every cell, what did not run, and the figure as printed."""
    observed, printed = figure.observed(), figure.paper()
    everything = [*observed, *(panel for row in printed for panel in row.panels)]
    with style.theme():
        pictures = [Markup(panel_svg(panel, f"o{index}")) for index, panel in enumerate(observed)]
        grid = []
        for at, row in enumerate(printed):
            small = [panel_svg(panel, f"p{at}-{index}", width=3.5) for index, panel in enumerate(row.panels)]
            grid.append((row.title, [Markup(picture) for picture in small]))
    body = fill(
        "figure6.html.j2",
        numbers=[at for at, number in enumerate(table.numeric) if number],
        facts=facts(summary, home),
        workloads=workloads(summary),
        observed=pictures,
        printed=grid,
        systems=_colours(everything),
        lanes=[lane for lane in style.LANES.values() if lane.name in {panel.lane for panel in everything}],
        marks=sorted({_MARKS.get(status, "triangle") for panel in everything for status in panel.statuses}),
        table=table,
        colour=style.colour,
        absences=absences(summary),
        specs=[spec for name, spec in SYSTEMS.items() if name in set(summary["system"])],
    )
    return Section("6", TITLE, body, bool(observed))


def _colours(panels: list[Panel]) -> list[tuple[str, str]]:
    return [(name, style.colour(name)) for name in style.in_order(name for panel in panels for name in panel.systems)]
