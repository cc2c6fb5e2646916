"""SVG files that are the same whenever the same figure is drawn.

The solver of Matplotlib's layout adds up in the order of addresses in memory, so that what it places is off by some
1e-15 from run to run, and Matplotlib names clipping paths by a digest of just these numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure, FigureBase
from matplotlib.transforms import Bbox

# Decimals of a share of the figure: a thousandth of a point on the widest sheet.
_DECIMALS = 6
_SVG_DPI = 72


def save_svg(figure: Figure, target: Path | IO[str], transparent: bool = False) -> None:
    """Write a figure, which is laid out for good. Call it inside `seqmoe.report.style.theme`."""
    _settle(figure)
    figure.savefig(target, format="svg", metadata={"Date": None}, transparent=transparent)


def _settle(figure: Figure) -> None:
    engine = figure.get_layout_engine()
    if engine is None:
        return
    # Texts are as large as they will be written.
    FigureCanvasSVG(figure)
    figure.set_dpi(_SVG_DPI)
    engine.execute(figure)
    figure.set_layout_engine("none")
    _round(figure)
    for axes in figure.axes:
        axes.set_position(Bbox(np.round(axes.get_position(original=True).get_points(), _DECIMALS)))


def _round(figure: FigureBase) -> None:
    """Titles of the figure and of the figures in it, and where these lie."""
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((round(x, _DECIMALS), round(y, _DECIMALS)))
    for part in figure.subfigs:
        part.bbox_relative.set_points(np.round(part.bbox_relative.get_points(), _DECIMALS))
        _round(part)
