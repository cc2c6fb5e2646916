"""Figures for the page: an SVG that stands inside HTML, follows its colours, and tells the value of a bar."""

from __future__ import annotations

import io
import re
from html import escape

from matplotlib.figure import Figure

from seqmoe.report import style
from seqmoe.report.drawing import draw
from seqmoe.report.layout import save_svg
from seqmoe.report.panel import Panel
from seqmoe.report.plot import Plot, draw_plot

_VARIABLES = {
    style.INK: "var(--ink)",
    style.MUTED: "var(--muted)",
    style.GRID: "var(--line)",
    style.PAPER: "var(--card)",
}


def panel_svg(panel: Panel, prefix: str, width: float = 4.1, height: float | None = None) -> str:
    """One panel as an ``<svg>`` element as wide as its container.

    ``prefix`` makes the ids of this picture unique in the page; ``width`` is in inches: a picture that is shown at the
    same size with fewer inches has larger letters; ``height`` is 0.78 of it if not given. Call it inside
    `seqmoe.report.style.theme`.
    """
    figure = Figure(figsize=(width, height or 0.78 * width), layout="constrained")
    tips = draw(panel, figure.subplots(), width)
    return inline_svg(figure, tips, prefix, label=f"{panel.title}: {panel.note}, {panel.unit}")


def plot_svg(panel: Plot, prefix: str, width: float = 4.1) -> str:
    """One panel of lines as an ``<svg>`` element; see `panel_svg`."""
    figure = Figure(figsize=(width, 0.82 * width), layout="constrained")
    tips = draw_plot(panel, figure.subplots())
    return inline_svg(figure, tips, prefix, label=f"{panel.title}: {panel.note}, {panel.unit}")


def inline_svg(figure: Figure, tips: dict[str, str], prefix: str, label: str) -> str:
    """A figure as an ``<svg>`` element; ``tips`` are the words to show over what has each id."""
    stream = io.StringIO()
    save_svg(figure, stream, transparent=True)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    # The picture's own style rule would apply to the whole page, which has it in its style sheet.
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{escape(label)}">',
                  text, count=1)  # fmt: skip
    for tip, words in tips.items():
        text = text.replace(f'<g id="{tip}">', f'<g id="{tip}"><title>{escape(words)}</title>')
    for sentinel, variable in _VARIABLES.items():
        text = text.replace(sentinel, variable)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    return text.strip()
