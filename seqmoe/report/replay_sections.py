"""The page's parts on the replay: figures 3 and 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from seqmoe.report import replay_findings, style
from seqmoe.report.figure3 import Figure3
from seqmoe.report.figure7 import Figure7
from seqmoe.report.page import Section
from seqmoe.report.plot import Plot
from seqmoe.report.prediction_sections import Entry, entry, study_section
from seqmoe.report.replay_plots import handles
from seqmoe.report.replay_tables import replay_table
from seqmoe.report.replays import ReplayGroup
from seqmoe.report.svg import plot_svg

TITLE_3 = "What it is worth to know which experts come next"
TITLE_7 = "How many experts are on the device when they are needed"


def section3(figure: Figure3) -> Section:
    """Figure 3: eviction by history, by the future and by forecasts."""
    groups = []
    for index, group in enumerate(figure.groups):
        values = _group(group, figure.panels(group), f"f3-{index}")
        sentences = [replay_findings.sentence3(figure, group)]
        groups.append(values | {"facts": replay_findings.facts3(group), "sentences": sentences})
    return study_section("3", TITLE_3, groups, [], "replay.html.j2")


def section7(figure: Figure7) -> Section:
    """Figure 7: hit rates of every policy, and what follows from them."""
    groups = []
    for index, group in enumerate(figure.groups):
        values = _group(group, figure.panels(group), f"f7-{index}")
        sentences = replay_findings.sentences7(group)
        groups.append(values | {"facts": replay_findings.facts7(figure, group), "sentences": sentences})
    return study_section("7", TITLE_7, groups, [figure.printed()], "replay.html.j2")


def _group(group: ReplayGroup, panels: Sequence[Plot], prefix: str) -> dict[str, Any]:
    with style.theme():
        pictures = [Markup(plot_svg(panel, f"{prefix}-{index}")) for index, panel in enumerate(panels)]
    return {
        "heading": f"On {group.source}",
        "about": f"{group.source[0].upper()}{group.source[1:]}: {group.about}.",
        "legend": _legend(panels),
        "panels": pictures,
        "tables": [replay_table(group)],
        "remarks": [f"{panel}: {status}, {reason}" for panel, status, reason in group.absent],
    }


def _legend(panels: Sequence[Plot]) -> list[Entry]:
    drawn = {line.name: line for plot in panels for line in plot.lines}
    found = []
    for handle in handles(panels):
        name = str(handle.get_label())
        if name in drawn:
            colour = str(handle.get_color())
            # Ink and grey follow the page's own colours, in light as in dark.
            shade = {style.INK: "var(--ink)", style.MUTED: "var(--muted)"}.get(colour, colour)
            found.append(entry(name, shade, drawn[name].marker, drawn[name].look))
    return found
