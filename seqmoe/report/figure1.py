"""Figure 1: how large the parts of a model are, and what every system leaves of full-load speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import Summary, summarize
from seqmoe.report import style
from seqmoe.report.frame import system_title
from seqmoe.spec.model import Model

_WIDTH = 0.72
# Names in the claims' ids that are other titles here; colours of the parts of a model.
_PRINTED = {"Eager": "Eager (naive)"}
_PARTS = {"experts": "#56b4e9", "active": "#d55e00", "others": "#949494"}


@dataclass(frozen=True, slots=True)
class Row:
    """One system: its throughput in one lane, the printed one, or why there is none."""

    title: str
    lane: str
    tok_s: tuple[float, ...]
    printed: float
    reason: str = ""

    @property
    def summary(self) -> Summary | None:
        """Median and interval; None where nothing ran."""
        return summarize(self.tok_s) if self.tok_s else None


@dataclass(frozen=True, slots=True)
class Size:
    """One part of the model in GB (1e9 bytes), and as printed."""

    name: str
    colour: str
    gigabytes: float
    printed: float


class Figure1:
    """Records of one model on one machine, the model, and the paper's claims."""

    def __init__(self, records: Iterable[Record], claims: pd.DataFrame, model: Model) -> None:
        self._claims = claims[claims["figure"].astype(str) == "1"].set_index("id")["value"].astype(float)
        self.model = model
        kept = [record for record in records if record.cell.model == model.name]
        # Lanes never share an axis: a measurement takes the place of what was simulated.
        lanes = [lane for lane in style.LANES if any(r.cell.lane == lane and r.status.ok for r in kept)]
        self.lane = lanes[0] if lanes else "simulated"
        cells: dict[str, list[Record]] = {}
        for record in kept:
            if record.cell.lane == self.lane:
                cells.setdefault(system_title(record.cell), []).append(record)
        order = ["FullLoad", *(title for title in style.COLOURS if title != "FullLoad"), *cells]
        self.rows = [self._row(title, cells[title]) for title in dict.fromkeys(order) if title in cells]

    def printed(self) -> dict[str, float]:
        """The paper's tok/s by system."""
        values = {str(name): float(value) for name, value in self._claims.items()}
        found = {name.removeprefix("fig1-"): value for name, value in values.items() if name.startswith("fig1-")}
        return {_PRINTED.get(name, name): value for name, value in found.items()}

    def sizes(self) -> list[Size]:
        """Experts, the active ones among them, and the rest."""
        geometry, expert = self.model.geometry, self.model.expert_bytes / 1e9
        values = (
            ("All experts", "experts", geometry.total_experts * expert, "size-experts"),
            ("Active experts", "active", self.model.layers * self.model.top_k * expert, "size-active-experts"),
            ("Non-experts", "others", self.model.non_expert_bytes / 1e9, "size-non-experts"),
        )
        return [Size(name, _PARTS[part], size, float(self._claims[claim])) for name, part, size, claim in values]

    def sentences(self) -> list[str]:
        """What the bars say, in words."""
        found = []
        full = next((row for row in self.rows if row.title == "FullLoad" and row.summary), None)
        ours = next((row for row in self.rows if row.title == "SeqMoE" and row.summary), None)
        if full and ours and full.summary and ours.summary:
            printed = ours.printed / full.printed
            found.append(
                f"SeqMoE has {ours.summary.median / full.summary.median:.0%} of full load ({self.lane}); the paper "
                f"prints {printed:.0%}."
            )
        if self.lane == "simulated" and full:
            found.append("Full load is an input of the simulator; the other systems' bars here are predictions.")
        return found

    def draw_speeds(self, axes: Axes) -> dict[str, str]:
        """Bars in one lane with the printed values as ticks; without records the printed values alone."""
        tips: dict[str, str] = {}
        titles = [row.title for row in self.rows] or list(self.printed())
        top = max([*self.printed().values(), *(row.summary.high for row in self.rows if row.summary)])
        for place, title in enumerate(titles):
            row = next((row for row in self.rows if row.title == title), None)
            tips[f"tip-{place}"] = self._draw(axes, place, row, title)
        axes.set_xticks(range(len(titles)), [title.replace(" (", "\n(") for title in titles], fontsize=7.5)
        axes.set_ylim(0, 1.22 * top)
        axes.set_ylabel("Decode (tok/s)")
        title = f"Decode speed, {self.lane}" if self.rows else "Decode speed, paper"
        _frame(axes, title, f"{self.model.title}, RTX 4090, 45% of the experts; black ticks and brackets: paper")
        return tips

    def draw_sizes(self, axes: Axes) -> dict[str, str]:
        """Sizes by arithmetic with the printed ones as ticks."""
        tips: dict[str, str] = {}
        for place, size in enumerate(self.sizes()):
            tip = f"tip-{place}"
            tips[tip] = f"{size.name}: {size.gigabytes:.2f} GB, printed {size.printed} GB"
            axes.bar(place, size.gigabytes, _WIDTH, color=size.colour, gid=tip, zorder=2)
            _tick(axes, place, size.printed)
            _text(axes, place, max(size.gigabytes, size.printed), f"{size.gigabytes:.1f}\n({size.printed:g})")
        axes.set_xticks(range(3), [size.name for size in self.sizes()])
        axes.set_ylim(0, 36)
        axes.set_ylabel("GB")
        _frame(axes, "Parts of the model", f"{self.model.title}, computed; black ticks and brackets: paper")
        return tips

    def figure(self) -> Figure:
        """Sizes and speeds, side by side. Call it inside `seqmoe.report.style.theme`."""
        sheet = Figure(figsize=(10.5, 3.8), layout="constrained")
        left, right = sheet.subplots(1, 2, width_ratios=(2, 4))
        self.draw_sizes(left)
        self.draw_speeds(right)
        return sheet

    def table(self) -> pd.DataFrame:
        """Every number, ours and the printed one."""
        rows: list[dict[str, object]] = [
            {"part": "b", "name": row.title, "lane": row.lane, "unit": "tok/s", "reason": row.reason,
             "value": row.summary.median if row.summary else None, "paper": row.printed}
            for row in self.rows
        ]  # fmt: skip
        rows += [
            {"part": "a", "name": size.name, "lane": "computed", "unit": "GB", "value": size.gigabytes,
             "paper": size.printed}
            for size in self.sizes()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def _row(self, title: str, records: list[Record]) -> Row:
        values = [value for record in records if isinstance(value := metrics.decode_tok_s(record), float)]
        printed = self.printed().get(title, float("nan"))
        return Row(title, self.lane, tuple(values), printed, "" if values else str(records[-1].status))

    def _draw(self, axes: Axes, place: int, row: Row | None, title: str) -> str:
        printed = self.printed().get(title, float("nan"))
        words = f"the paper prints {printed:g}"
        height = printed
        if row is not None and row.summary is not None:
            hatch = "////" if row.lane == "simulated" else ""
            axes.bar(place, row.summary.median, _WIDTH, color=style.colour(title), hatch=hatch, edgecolor=style.INK,
                     linewidth=0.6, gid=f"tip-{place}", zorder=2)  # fmt: skip
            height = max(printed, row.summary.median)
            _text(axes, place, height, f"{row.summary.median:.1f}\n({printed:g})")
            words = f"{row.summary.median:.1f} tok/s, {row.lane}; {words}"
        elif row is not None:
            axes.plot([place], [1.0], marker="x", color=style.MUTED, linestyle="none", gid=f"tip-{place}")
            words = f"{row.reason}; {words}"
        else:
            _text(axes, place, height, f"{printed:g}")
        _tick(axes, place, printed)
        return f"{title}: {words}"


def _tick(axes: Axes, place: int, value: float) -> None:
    ends = (place - _WIDTH / 2 - 0.04, place + _WIDTH / 2 + 0.04)
    axes.plot(ends, [value] * 2, color=style.INK, linewidth=2.2, solid_capstyle="butt", zorder=3)


def _text(axes: Axes, place: float, height: float, text: str) -> None:
    axes.annotate(text, (place, height), xytext=(0, 3), textcoords="offset points", ha="center", va="bottom",
                  fontsize=8.5, color=style.INK)  # fmt: skip


def _frame(axes: Axes, title: str, note: str) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", zorder=0)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    text = axes.annotate(note, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points",
                         fontsize=7.5, color=style.MUTED)  # fmt: skip
    text.set_in_layout(False)
