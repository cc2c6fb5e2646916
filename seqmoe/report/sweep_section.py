"""The page on link, residency and recall, its part of the report and its table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from seqmoe.harness.conditions import newest_only
from seqmoe.harness.record import Record
from seqmoe.report.cpu_misses import CpuMisses
from seqmoe.report.page import Section, fill
from seqmoe.report.parts import Part
from seqmoe.report.plot import draw_plot
from seqmoe.report.step_sections import Drawing, pictures_of, terminal_table
from seqmoe.report.sweep import Sweep, rows_of
from seqmoe.spec.paths import Home

TITLE = "What the link, the residency and the predictor decide"


def part_sweep(records: Sequence[Record], home: Home) -> Part:
    """The sweep, which is no figure of the paper."""
    chosen = list(newest_only(records).records)
    figure, misses = Sweep(chosen), CpuMisses(chosen)
    words = [*figure.sentences(), *misses.sentences()]
    table = Group(terminal_table(headings(figure), rows_of(figure.groups)), *map(Text, words))
    return Part(
        "sweep",
        bool(figure.groups or misses.machines),
        chosen,
        section_sweep(figure, misses),
        lambda: sheet(figure, misses),
        lambda: pd.concat([figure.table(), misses.table()], ignore_index=True),
        table,
        words[0] if words else "",
    )


def sheet(figure: Sweep, misses: CpuMisses) -> Figure:
    """All panels, three in a row. Call it inside `seqmoe.report.style.theme`."""
    count = len(figure.groups) + 1
    found = Figure(figsize=(13.0, 4.2 * count), layout="constrained")
    rows = found.subplots(count, 3, squeeze=False)
    figure.draw(rows.tolist())
    for axes, plot in zip_longest(rows[-1].tolist(), misses.plots()):
        if plot is None:
            axes.set_axis_off()
            continue
        draw_plot(plot, axes)
        axes.legend(loc="upper right", frameon=False, fontsize=7.5)
    return found


def section_sweep(figure: Sweep, misses: CpuMisses) -> Section:
    """Three pictures for each model and machine, and one of misses on the CPU for each lane."""
    plots = [plot for group in figure.groups for plot in figure.panels(group)]
    plots += misses.plots()
    drawings: list[Drawing] = [lambda axes, plot=plot: draw_plot(plot, axes) for plot in plots]  # type: ignore[misc]
    shades = {f"{held:.0%} of the experts held": group.shade(held)
              for group in figure.groups for held in group.residencies}  # fmt: skip
    lines = {line.name: line.colour for plot in misses.plots() for line in plot.lines}
    body = fill(
        "steps.html.j2",
        suite="sweep",
        recorded=bool(plots),
        lead="How fast a machine would be with another link, with more or fewer of the experts, or with a worse or "
        "better predictor, and where its CPU should compute what misses: what no table of the paper says, and what "
        "decides whether it pays on a given machine.",
        legend=list((shades | lines).items()),
        pictures=pictures_of(drawings, "sweep", width=6.0),
        sentences=[*figure.sentences(), *misses.sentences()],
        caption="SeqMoE in tok/s by link in GB/s; in brackets the roofline.",
        headings=headings(figure),
        rows=rows_of(figure.groups),
        method="Simulated in virtual time on synthetic routing, unless a picture says that it is emulated. The "
        "roofline evicts with full knowledge of the future, which moves the fewest bytes, and moves them all while the "
        "GPU computes: no system on that link with so many experts can be faster. Predictors of another recall are "
        "noisy oracles that lose as much over eight steps as the paper's; below what the last token alone gives there "
        "is none. Misses that the CPU computes are fetched in the background as well; how many it computes is decided "
        "layer by layer, with what link and CPU leave each other of the host's memory. Emulated: our runtime on this "
        "machine really computes them from the host pool, in dilated time, and is charged what the imitated CPU takes.",
        commands="nox -s reproduce-sweep",
    )
    return Section("sweep", TITLE, body, bool(plots))


def headings(figure: Sweep) -> tuple[str, ...]:
    """Of the table: the case, then the links."""
    links = sorted({link for group in figure.groups for link in group.links})
    return ("Model, experts held", *(f"{link:g} GB/s" for link in links))
