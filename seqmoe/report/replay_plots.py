"""Panels that the figures of the replay share: hit rates and what follows from them, by residency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from matplotlib.lines import Line2D

from seqmoe.report import style
from seqmoe.report.plot import LINES, Line, Plot, common_ends
from seqmoe.report.replays import NO_LINK, Replayed, ReplayGroup, title_of
from seqmoe.simulate.counting import BANDS

# A policy with the name of a link, or with none.
Chosen = tuple[str, str]
_BOUNDS = ("belady", "belady_8")


def hit_rates(group: ReplayGroup, title: str, note: str, chosen: Sequence[Chosen], strong: str = "") -> Plot:
    """Hit rate by residency."""
    return by_residency(group, title, note, "Expert hit rate", chosen, lambda one: one.row.hit_rate, strong, True)


def by_residency(
    group: ReplayGroup,
    title: str,
    note: str,
    unit: str,
    chosen: Sequence[Chosen],
    value: Callable[[Replayed], float | None],
    strong: str = "",
    intervals: bool = False,
    percent: bool = True,
) -> Plot:
    """One line for each policy that has rows with a value."""
    lines = []
    for policy, link in chosen:
        found = [(one, y) for one in group.line(policy, link) if (y := value(one)) is not None]
        if found:
            x, values = [one.row.residency for one, _ in found], [y for _, y in found]
            known = [one.row.interval for one, _ in found if one.row.interval is not None]
            low, high = ([interval[end] for interval in known] for end in (0, 1))
            # Bands of every policy would hide the lines: what the panel is about has one.
            banded = intervals and policy == strong and len(known) == len(found)
            lines.append(_line(policy, x, values, low if banded else [], high if banded else [], policy == strong))
    places = tuple((residency, f"{residency:.0%}") for residency in group.residencies)
    ends = None
    if lines and intervals:
        ends = common_ends([Plot("", "", "", "", tuple(lines))])
    elif lines and percent:
        heights = [y for line in lines for y in line.y]
        ends = (min(0.0, *heights) - 0.02, max(heights) + 0.04)
    empty = "" if lines else "nothing was run for it"
    return Plot(title, note, unit, "Experts on the device", tuple(lines), places=places, ends=ends, percent=percent,
                empty=empty)  # fmt: skip


def by_place(group: ReplayGroup, residency: float, policies: Iterable[str], strong: str) -> Plot:
    """Hit rate by place in the decoding."""
    lines = []
    for policy in policies:
        one = group.find(policy, residency)
        if one is not None:
            x = [float(BANDS.index(first)) for first, _ in one.row.bands]
            lines.append(_line(policy, x, [rate for _, rate in one.row.bands], [], [], policy == strong))
    used = sorted({x for line in lines for x in line.x})
    places = tuple((x, f"from {BANDS[int(x)]:,}") for x in used)
    return Plot("Over the decoding", f"{residency:.0%} of the experts on the device", "Expert hit rate", "Token",
                tuple(lines), places=places, ends=common_ends([Plot("", "", "", "", tuple(lines))]) if lines else None,
                empty="" if lines else "nothing was run for it")  # fmt: skip


def handles(plots: Sequence[Plot]) -> list[Line2D]:
    """The legend of panels of policies: one entry for each, and one for the paper's ticks."""
    named: dict[str, Line] = {}
    for plot in plots:
        for line in plot.lines:
            named.setdefault(line.name, line)
    order = {title: index for index, (title, _, _) in enumerate(style.POLICIES.values())}
    found = [
        Line2D([], [], color=line.colour, marker=line.marker or "none", linewidth=2.0, linestyle=LINES[line.look],
               label=name)
        for name, line in sorted(named.items(), key=lambda pair: order.get(pair[0], len(order)))
    ]  # fmt: skip
    if any(plot.ticks for plot in plots):
        found.append(Line2D([], [], color=style.INK, linewidth=2.6, label="printed in the paper"))
    return found


def recovered(one: Replayed) -> float | None:
    """Share of the LRU-Belady gap."""
    return one.row.gap_recovered


def moved(one: Replayed) -> float:
    """Experts over the link per token, on demand and prefetched."""
    return one.row.loads_per_token + one.row.sent_per_token


def _line(
    policy: str, x: Sequence[float], y: Sequence[float], low: Sequence[float], high: Sequence[float], strong: bool
) -> Line:
    base, _, order = policy.partition("+")
    _, colour, marker = style.POLICIES.get(policy, style.POLICIES.get(base, ("", style.MUTED, "o")))
    look = "dashed" if policy in _BOUNDS else "dotted" if order else "solid"
    return Line(title_of(policy), colour, tuple(x), tuple(y), tuple(low), tuple(high), marker, look, strong)


__all__ = ["NO_LINK", "Chosen", "by_place", "by_residency", "handles", "hit_rates", "moved", "recovered"]
