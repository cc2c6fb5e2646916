"""What benchmarks took on each machine, revision by revision, as `nox -s bench` has kept it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmoe.harness.against.history import Point, read
from seqmoe.report import style
from seqmoe.report.svg import inline_svg

_STEPS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))
_SHORT = 7


@dataclass(frozen=True, slots=True)
class Track:
    """One benchmark on one machine; ``points`` in the order of time."""

    machine: str
    benchmark: str
    points: tuple[Point, ...]

    @property
    def scale(self) -> tuple[float, str]:
        """By what to multiply seconds, and the unit that this gives."""
        most = max(point.median for point in self.points)
        return next((factor, unit) for limit, factor, unit in _STEPS if most < limit)

    def text(self, seconds: float) -> str:
        """A time of this benchmark with its unit."""
        factor, unit = self.scale
        return f"{seconds * factor:.3g} {unit}"


def read_histories(folders: Iterable[Path]) -> list[Point]:
    """The rows of every benchmarks.csv below folders of results; what stands in two of them counts once."""
    points = [point for folder in folders for path in sorted(folder.glob("*/benchmarks.csv")) for point in read(path)]
    return list(dict.fromkeys(points))


def tracks_of(points: Sequence[Point]) -> list[Track]:
    """The points by machine and benchmark."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.machine, point.benchmark), []).append(point)
    return [
        Track(machine, benchmark, tuple(sorted(group, key=lambda point: point.time)))
        for (machine, benchmark), group in sorted(groups.items())
    ]


def history_data(points: Sequence[Point]) -> pd.DataFrame:
    """One line for each point; ``median`` in seconds."""
    names = ("machine", "benchmark", "revision", "time", "median")
    return pd.DataFrame([{name: getattr(point, name) for name in names} for point in points], columns=list(names))


def history_svg(track: Track, prefix: str) -> str:
    """The medians over revisions as an ``<svg>`` element. Call it inside `seqmoe.report.style.theme`."""
    figure = Figure(figsize=(4.1, 2.4), layout="constrained")
    tips = _draw(figure.subplots(), track)
    return inline_svg(figure, tips, prefix, f"{track.benchmark}: medians over {len(track.points)} runs")


def _draw(axes: Axes, track: Track) -> dict[str, str]:
    factor, unit = track.scale
    values = [factor * point.median for point in track.points]
    tips: dict[str, str] = {}
    axes.plot(range(len(values)), values, color=style.MUTED, linewidth=1.4, zorder=2)
    for place, (point, value) in enumerate(zip(track.points, values, strict=True)):
        tip = f"tip-{place}"
        tips[tip] = f"{point.revision[:_SHORT]}, {point.time[:16]}: {track.text(point.median)}"
        axes.plot([place], [value], color="#0173b2", marker="o", markersize=5, linestyle="none", gid=tip, zorder=3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_ylim(0, 1.2 * max(values))
    axes.set_xlim(-0.5, max(len(values) - 0.5, 1.5))
    # As many names of revisions as have room below the axis.
    shown = range(0, len(values), max(1, len(values) // 4))
    axes.set_xticks(list(shown), [track.points[place].revision[:_SHORT] for place in shown], fontsize=7.5)
    axes.set_ylabel(f"Median ({unit})")
    file, _, test = track.benchmark.partition("::")
    axes.set_title(test.removeprefix("test_") or file, loc="left", fontweight="bold", fontsize=9)
    return tips
