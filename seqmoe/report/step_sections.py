"""The page's parts on single decode steps, figures 4 and 9, and their tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from seqmoe.report import style
from seqmoe.report.figure4 import MODES, Figure4
from seqmoe.report.figure9 import Figure9
from seqmoe.report.page import Section, fill
from seqmoe.report.stacks import PARTS, draw_stacks
from seqmoe.report.svg import inline_svg

TITLE_4 = "What the way of execution costs"
TITLE_9 = "Where the time of a decode step goes"
HEADINGS_4 = ("Execution", "tok/s", "95%", "Repeats")
HEADINGS_9 = ("Case", "Held", "Step (ms)", *(name for name, _ in PARTS.values()), "in PyTorch", "Repeats")

Drawing = Callable[[Axes], dict[str, str]]


def section4(figure: Figure4) -> Section:
    """Figure 4."""
    body = fill(
        "steps.html.j2",
        suite="fig4",
        recorded=figure.recorded,
        lead="The same answer with every expert resident, computed one expert after another, one kernel for each layer "
        "that the host starts, or the whole decode step at once.",
        pictures=pictures_of(figure.drawings(), "f4"),
        sentences=figure.sentences(),
        headings=HEADINGS_4,
        rows=rows4(figure),
        method="Full load, greedy, the same tokens in every mode. On a CPU, graph is the decode step compiled once at "
        "fixed addresses; a GPU's is a CUDA graph. Only ratios can be set beside the paper's. Hatched bars are the "
        "simulator's, on the paper's GPUs; black ticks and numbers in brackets are printed. Full load in a graph is an "
        "input of the simulator.",
        commands="nox -s reproduce-fig4",
    )
    return Section("4", TITLE_4, body, figure.recorded)


def section9(figure: Figure9) -> Section:
    """Figure 9."""
    drawings: list[Drawing] = [figure.draw_observed] if figure.rows else []
    drawings.append(lambda axes: draw_stacks(axes, figure.printed(), "The paper", "45% (40% for Qwen3.6), its GPUs"))
    body = fill(
        "steps.html.j2",
        suite="fig9",
        recorded=bool(figure.rows),
        lead="What a decode step is spent on while most experts wait behind a link.",
        legend=list(PARTS.values()),
        pictures=pictures_of(drawings, "f9", width=6.4),
        sentences=figure.sentences(),
        headings=HEADINGS_9,
        caption="Of each case the repeat whose step took the median time; parts are shares of it.",
        rows=rows9(figure),
        method="Timers that do not overlap, of the repeat whose step took the median time. Computation is attention, "
        "routers, the experts' kernel, head and choice of the token, for real on this host; the link is throttled to "
        "as many experts per layer as on an RTX 4090. Other is the loop around the model. Mamba2 runs in the C++ "
        "core; what its forecasts take in PyTorch, timed alone, is set beside it as a share of the same step.",
        commands="nox -s reproduce-fig9",
    )
    return Section("9", TITLE_9, body, bool(figure.rows))


def rows4(figure: Figure4) -> list[tuple[str, ...]]:
    """The table's rows as text."""
    rows: list[tuple[str, ...]] = []
    for row in [*figure.rows, *(row for rows in figure.simulated.values() for row in rows)]:
        found, name = row.summary, MODES[row.mode] + (f", {row.model}, simulated" if row.model else "")
        if found is None:
            rows.append((name, row.reason, "", "0"))
        else:
            interval = f"{found.low:.1f}-{found.high:.1f}" if found.count > 1 else ""
            rows.append((name, f"{found.median:.1f}", interval, str(found.count)))
    return rows


def rows9(figure: Figure9) -> list[tuple[str, ...]]:
    """The table's rows as text."""
    return [
        (
            row.title.removesuffix(" (FreeToken's policy)"),
            f"{row.residency:.0%}",
            f"{1e3 * row.step_seconds:.2f}",
            *(f"{row.shares[part]:.1%}" for part in PARTS),
            f"{row.pytorch:.1%}" if np.isfinite(row.pytorch) else "-",
            str(row.repeats),
        )
        for row in figure.rows
    ]


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The same table for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", overflow="fold", no_wrap=not index)
    for row in rows:
        table.add_row(*row)
    return table


def pictures_of(drawings: Sequence[Drawing], prefix: str, width: float = 4.1) -> list[Markup]:
    """Drawings as pictures; ``prefix`` makes their ids unique in the page, ``width`` is in inches."""
    pictures = []
    with style.theme():
        for index, draw in enumerate(drawings):
            sheet = Figure(figsize=(width, 3.4), layout="constrained")
            axes = sheet.subplots()
            tips = draw(axes)
            pictures.append(Markup(inline_svg(sheet, tips, f"{prefix}-{index}", axes.get_title(loc="left"))))
    return pictures
