"""Beyond the paper: simulated speed over the link, the residency and the recall of the predictor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.report.plot import Line, Plot, draw_plot
from seqmoe.spec.what_if import WhatIf, what_if

OURS, RIVAL, BOUND, FULL = "seqmoe", "lru", "bound", "full"
# From few experts on the device to many, in one hue.
_SHADES = ("#f6c28b", "#ee9a4d", "#d55e00", "#9c4500", "#5e2900", "#33150a")
_PANELS = ("link", "recall")
# A loss below this share is none.
_LESS = 0.02
_ACROSS_LINK, _ACROSS_RECALL = "Link (GB/s, sustained)", "Recall of the first k+3, one step ahead"


@dataclass(frozen=True, slots=True)
class Place:
    """One simulated cell: tok/s and hit rate of a system at a residency, and what was changed for it."""

    panel: str
    system: str
    residency: float
    changed: WhatIf
    tok_s: float
    hit_rate: float


@dataclass(frozen=True, slots=True)
class Group:
    """The places of one model on one machine."""

    model: str
    hardware: str
    places: tuple[Place, ...]

    @property
    def residencies(self) -> list[float]:
        """Those of SeqMoE, ascending."""
        return sorted({place.residency for place in self.places if place.system == OURS})

    @property
    def links(self) -> list[float]:
        """Links in GB/s, ascending."""
        return sorted({place.changed.link for place in self.places if place.changed.link is not None})

    def shade(self, residency: float) -> str:
        """The colour of a residency."""
        return _SHADES[min(self.residencies.index(residency), len(_SHADES) - 1)]

    def line(self, panel: str, system: str, residency: float) -> dict[float, float]:
        """Tok/s by link or recall, ascending."""
        found = {
            float((place.changed.link if panel == "link" else place.changed.recall) or math.nan): place.tok_s
            for place in self.places
            if (place.panel, place.system, place.residency) == (panel, system, residency)
        }
        return dict(sorted(found.items()))


class Sweep:
    """Records of the sweep, as pictures and words."""

    def __init__(self, records: Iterable[Record]) -> None:
        groups: dict[tuple[str, str], list[Place]] = {}
        for record in records:
            if record.cell.panel not in _PANELS:
                continue
            speed, hits, cell = metrics.decode_tok_s(record), metrics.hit_rate(record), record.cell
            if isinstance(speed, float) and isinstance(hits, float):
                place = Place(cell.panel, cell.system, cell.residency, what_if(cell.what_if), speed, hits)
                groups.setdefault((cell.model, cell.hardware), []).append(place)
        self.groups = [Group(model, hardware, tuple(places)) for (model, hardware), places in groups.items()]

    def panels(self, group: Group) -> list[Plot]:
        """SeqMoE over the link, LRU over the link, SeqMoE over its predictor's recall."""
        about = f"{group.model}, {group.hardware}, simulated"
        return [
            self._over_link(group, OURS, "SeqMoE over the link", f"{about}; dashed: roofline"),
            self._over_link(group, RIVAL, "LRU over the link", f"{about}; dashed: roofline"),
            self._over_recall(group, f"{about}; dotted: LRU"),
        ]

    def sentences(self) -> list[str]:
        """What the lines say."""
        return [text for group in self.groups for text in (*_of_links(group), *_of_recalls(group))]

    def table(self) -> pd.DataFrame:
        """Every place."""
        return pd.DataFrame(
            [
                {"model": group.model, "hardware": group.hardware, "panel": place.panel, "system": place.system,
                 "residency": place.residency, "link_gb_s": place.changed.link, "recall": place.changed.recall,
                 "tok_s": place.tok_s, "hit_rate": place.hit_rate}
                for group in self.groups
                for place in group.places
            ]
        )  # fmt: skip

    def draw(self, rows: Sequence[Sequence[Axes]]) -> None:
        """The panels of each group in a row of three axes."""
        for row, group in zip(rows, self.groups, strict=False):
            for axes, plot in zip(row, self.panels(group), strict=True):
                draw_plot(plot, axes)
            handles = [Line2D([], [], color=group.shade(held), label=f"{held:.0%} of the experts held")
                       for held in group.residencies]  # fmt: skip
            row[0].legend(handles=handles, frameon=False, fontsize=7.5)

    def _over_link(self, group: Group, system: str, title: str, note: str) -> Plot:
        lines = []
        for held in group.residencies:
            for name, look in ((system, "solid"), (BOUND, "dashed")):
                rates = group.line("link", name, held)
                label = "roofline" if name == BOUND else {OURS: "SeqMoE", RIVAL: "LRU"}[name]
                lines.append(Line(f"{label}, {held:.0%} held", group.shade(held), tuple(map(math.log2, rates)),
                                  tuple(rates.values()), marker="o" if name == system else "", look=look,
                                  strong=name == system))  # fmt: skip
        places = tuple((math.log2(link), f"{link:g}") for link in group.links)
        return Plot(title, note, "Decode (tok/s)", _ACROSS_LINK, tuple(lines), places=places, percent=False,
                    ends=_ends(group))  # fmt: skip

    def _over_recall(self, group: Group, note: str) -> Plot:
        lines = []
        for held in group.residencies:
            rates = group.line("recall", OURS, held)
            if not rates:
                continue
            shade, x = group.shade(held), tuple(rates)
            lines.append(Line(f"SeqMoE, {held:.0%} held", shade, x, tuple(rates.values()), strong=True))
            rival = rival_of(group, held)
            if rival is not None:
                lines.append(
                    Line(f"LRU, {held:.0%} held", shade, (x[0], x[-1]), (rival,) * 2, marker="", look="dotted")
                )
        recalls = sorted({x for line in lines for x in line.x})
        places = tuple((recall, f"{recall:.0%}") for recall in recalls)
        return Plot("SeqMoE over its predictor", note, "Decode (tok/s)", _ACROSS_RECALL, tuple(lines), places=places,
                    percent=False, ends=_ends(group), empty="" if lines else "no recall was swept")  # fmt: skip


def rival_of(group: Group, residency: float) -> float | None:
    """LRU's tok/s on the machine as it is."""
    found = (place.tok_s for place in group.places
             if (place.panel, place.system, place.residency) == ("recall", RIVAL, residency))  # fmt: skip
    return next(found, None)


def _ends(group: Group) -> tuple[float, float]:
    return 0.0, 1.05 * max(place.tok_s for place in group.places)


def _of_links(group: Group) -> list[str]:
    found = []
    for held in (group.residencies[0], group.residencies[-1]) if group.residencies else ():
        ours, bound = group.line("link", OURS, held), group.line("link", BOUND, held)
        shares = {link: ours[link] / bound[link] for link in ours if link in bound}
        if len(shares) > 1:
            slow, fast = min(shares), max(shares)
            found.append(
                f"{group.model} with {held:.0%} of the experts on {group.hardware}: SeqMoE has {ours[slow]:.1f} tok/s "
                f"over {slow:g} GB/s, {shares[slow]:.0%} of what the link and all-knowing eviction allow, and "
                f"{ours[fast]:.1f} over {fast:g} GB/s, {shares[fast]:.0%}."
            )
    return found


def _of_recalls(group: Group) -> list[str]:
    found, sharper = [], []
    for held in group.residencies:
        own, rival = group.line("recall", OURS, held), rival_of(group, held)
        if len(own) < 2 or rival is None:
            continue
        worst, best, most = min(own), max(own, key=lambda recall: own[recall]), max(own)
        found.append(
            f"With {held:.0%} held, a recall of {worst:.0%} gives {own[worst]:.1f} tok/s and one of {best:.1%} "
            f"{own[best]:.1f}; LRU, which predicts nothing, has {rival:.1f}."
        )
        if best < most and own[most] < (1 - _LESS) * own[best]:
            sharper.append(f"{held:.0%}")
    if sharper:
        found.append(
            f"With {' and '.join(sharper)} held, a recall above that is slower: a sure forecast gives all experts that "
            "it does not see within its eight steps the same score, so that their eviction is left to chance."
        )
    return found


def rows_of(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """One row for each residency, a column for each link, of SeqMoE and the roofline."""
    rows = []
    for group in groups:
        for held in group.residencies:
            ours, bound = group.line("link", OURS, held), group.line("link", BOUND, held)
            cells = [f"{ours[link]:.1f} ({bound[link]:.0f})" if link in ours and link in bound else "-"
                     for link in group.links]  # fmt: skip
            rows.append((f"{group.model}, {held:.0%}", *cells))
    return rows
