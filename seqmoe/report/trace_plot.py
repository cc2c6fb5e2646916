"""One figure of a trace set: load, overlap, reuse and diversity, layer by layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from seqmoe.report import style
from seqmoe.report.layout import save_svg
from seqmoe.spec.files import replacing
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.statistics import RoutingProfile

_ORDERED, _SHUFFLED = style.COLOURS["SeqMoE"], style.COLOURS["FullLoad"]
# Loads further than this from an even share look the same.
_FAR = 8


def write_plot(traces: TraceSet, profile: RoutingProfile, path: Path) -> None:
    """Write the figure as PNG or SVG, by the path's suffix; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with style.theme():
        figure = draw(traces, profile)
        kind = path.suffix.lower().removeprefix(".")
        with replacing(path) as partial:
            if kind == "svg":
                save_svg(figure, partial)
            else:
                figure.savefig(partial, format=kind, dpi=160)


def draw(traces: TraceSet, profile: RoutingProfile) -> Figure:
    """The figure, within `style.theme`."""
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    axes = figure.subplots(2, 2)
    found = profile.statistics
    figure.suptitle(
        f"{traces.model}: {found.requests:,} request{'s' * (found.requests != 1)}, {found.tokens:,} decode tokens, "
        f"top-{traces.top_k} of {traces.experts} experts in {traces.layers} layers",
        fontsize=11,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    _load(axes[0, 0], profile)
    _overlap(axes[0, 1], profile)
    _reuse(axes[1, 0], profile)
    _distinct(axes[1, 1], traces, profile)
    return figure


def _load(axes: Axes, profile: RoutingProfile) -> None:
    share = profile.load / np.maximum(profile.load.sum(-1, keepdims=True), 1)
    relative = -np.sort(-share, axis=-1) * share.shape[1]
    image = axes.imshow(
        np.log2(np.clip(relative, 1 / _FAR, _FAR)),
        aspect="auto",
        cmap=seaborn.diverging_palette(240, 20, as_cmap=True),
        vmin=-np.log2(_FAR),
        vmax=np.log2(_FAR),
        interpolation="nearest",
    )
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02)
    marks = {1 / _FAR: f"≤ 1/{_FAR}", 1 / 2: "1/2", 1: "1", 2: "2", _FAR: f"≥ {_FAR}"}
    bar.set_ticks(np.log2(list(marks)).tolist(), labels=[f"{mark} ×" for mark in marks.values()])
    bar.outline.set_visible(False)
    _title(axes, "Load of each expert, relative to an even share", "experts of the layer, most used first", "layer")


def _overlap(axes: Axes, profile: RoutingProfile) -> None:
    layers = np.arange(len(profile.overlap))
    found = profile.statistics
    axes.plot(layers, profile.overlap, color=_ORDERED, marker="o", markersize=3, label=f"in order: {found.overlap:.3f}")
    axes.plot(
        layers, profile.overlap_shuffled, color=_SHUFFLED, marker="o", markersize=3,
        label=f"tokens shuffled: {found.overlap_shuffled:.3f}",
    )  # fmt: skip
    high = np.nanmax(np.r_[profile.overlap, profile.overlap_shuffled, 0.0])
    axes.set_ylim(0, high * 1.2 or 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(frameon=False, loc="upper left", ncols=2)
    _title(axes, "Experts shared with the previous token", "layer", "share of the token's experts")
    _grid(axes)


def _reuse(axes: Axes, profile: RoutingProfile) -> None:
    counts = profile.reuse[:, 1:]
    distances = np.arange(1, counts.shape[1] + 1)
    for row in counts:
        if row.sum():
            axes.plot(distances, np.cumsum(row) / row.sum(), color=style.GRID, linewidth=0.8, zorder=1)
    total = counts.sum(0)
    if total.sum():
        axes.plot(
            distances, np.cumsum(total) / total.sum(), color=_ORDERED, linewidth=1.8, label="all layers", zorder=2
        )
        axes.plot([], [], color=style.GRID, linewidth=0.8, label="one layer")
        axes.axvline(profile.statistics.reuse_median, color=style.MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
        axes.annotate(
            f"median {profile.statistics.reuse_median:.0f}", (profile.statistics.reuse_median, 0.04),
            xytext=(4, 0), textcoords="offset points", color=style.MUTED,
        )  # fmt: skip
        axes.legend(frameon=False, loc="lower right")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _title(axes, "Reuse distance of an expert", "tokens since its last use in the request", "share of uses up to it")
    _grid(axes)


def _distinct(axes: Axes, traces: TraceSet, profile: RoutingProfile) -> None:
    layers = np.arange(len(profile.distinct))
    axes.bar(layers, profile.distinct, width=0.8, color=style.COLOURS["KTransformers"])
    axes.axhline(traces.experts, color=style.INK, linewidth=0.8, linestyle=(0, (3, 2)))
    axes.annotate(
        f"all {traces.experts}", (0, traces.experts), xytext=(0, 3), textcoords="offset points", color=style.MUTED
    )
    axes.set_ylim(0, traces.experts * 1.12)
    _title(axes, "Distinct experts that a request uses", "layer", "experts, mean of requests")
    _grid(axes)


def _title(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if across == "layer":
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    if up == "layer":
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _grid(axes: Axes) -> None:
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes)
