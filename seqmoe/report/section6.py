"""Figure 6's two pages: what was measured and emulated, and what was simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from seqmoe.report import style
from seqmoe.report.facts import absences, facts, workloads
from seqmoe.report.figure6 import SIMULATED, Figure6
from seqmoe.report.figure6_simulated import Figure6Simulated
from seqmoe.report.page import Section, fill
from seqmoe.report.panel import Panel, span_of
from seqmoe.report.svg import panel_svg
from seqmoe.report.table import ShortTable, short_table
from seqmoe.spec.paths import Home
from seqmoe.spec.system import SYSTEMS

TITLE = "How much of full-load speed is left when most experts wait in host memory"
TITLE_SIMULATED = "The paper's machines and models, in virtual time"
_MARKS = {"unsupported": "cross", "not_installed": "ring"}
# From so many bars on a panel takes the whole width of its page.
_WIDE = 14.0
_SIZES = {"wide": (9.6, 3.5), "half": (6.2, 3.4), "small": (4.1, 3.2)}


def section6(figure: Figure6, summary: pd.DataFrame, home: Home, remarks: Sequence[str] = ()) -> Section:
    """What was measured and emulated, every cell, and what did not run. ``remarks`` stand below the table."""
    observed = figure.observed()
    own = summary[summary["lane"] != SIMULATED].reset_index(drop=True)
    body = fill(
        "figure6.html.j2",
        facts=facts(own, home),
        workloads=workloads(own),
        observed=_pictures(observed, "o"),
        **_shared(observed, own, short_table(own, remarks)),
    )
    return Section("6", TITLE, body, bool(observed))


def section6_simulated(figure: Figure6Simulated) -> Section:
    """The paper's grid with the simulator's bars, or, where nothing was simulated, as printed."""
    grid, beyond = figure.grid(), figure.beyond()
    panels = [*(panel for row in grid for panel in row.panels), *beyond]
    body = fill(
        "figure6_simulated.html.j2",
        grid=[(row.title, _pictures(row.panels, f"s{at}-", pairs=True)) for at, row in enumerate(grid)],
        beyond=_pictures(beyond, "b", pairs=True),
        recorded=len(figure.cells) > 0,
        **_shared(panels, figure.cells, short_table(figure.cells)),
    )
    return Section("6-simulated", TITLE_SIMULATED, body, len(figure.cells) > 0)


def _shared(panels: Sequence[Panel], summary: pd.DataFrame, table: ShortTable) -> dict[str, Any]:
    lanes = {panel.lane for panel in panels}
    if any(panel.printed for panel in panels):
        lanes.add("paper")
    return {
        "systems": [
            (name, style.colour(name)) for name in style.in_order(n for panel in panels for n in panel.systems)
        ],
        "lanes": [lane for lane in style.LANES.values() if lane.name in lanes],
        "marks": sorted({_MARKS.get(status, "triangle") for panel in panels for status in panel.statuses}),
        "table": table,
        "numbers": [at for at, number in enumerate(table.numeric) if number],
        "colour": style.colour,
        "absences": absences(summary),
        "specs": [spec for name, spec in SYSTEMS.items() if name in set(summary["system"])],
    }


def _pictures(panels: Sequence[Panel], prefix: str, pairs: bool = False) -> list[tuple[Markup, bool]]:
    """Each panel's picture, and whether it is a wide one."""
    pictures = []
    with style.theme():
        for index, panel in enumerate(panels):
            wide = span_of(panel) > _WIDE
            size = _SIZES["half" if pairs else "wide" if wide else "small"]
            pictures.append((Markup(panel_svg(panel, f"{prefix}{index}", *size)), wide))
    return pictures
