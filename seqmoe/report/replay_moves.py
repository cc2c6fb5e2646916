"""Panels of what one policy moves over the link, apart by layer and by place in the decoding."""

from __future__ import annotations

from seqmoe.report import style
from seqmoe.report.plot import Line, Plot
from seqmoe.report.replays import ReplayGroup
from seqmoe.simulate.counting import BANDS
from seqmoe.simulate.rows import Moved

# The columns of `Moved`, how they are called, and what they are drawn in; a look of their own for what is a part.
_DRAWN = (
    ("loads", "loaded on demand", style.INK, "solid"),
    ("sent", "prefetched", "#d55e00", "solid"),
    ("wasted", "prefetched and never needed", "#d55e00", "dotted"),
    ("late", "prefetched too late", style.MUTED, "dotted"),
)
_EMPTY = "the records do not tell it; run it again"


def moved_by_layer(group: ReplayGroup, policy: str, residency: float, link: str) -> Plot:
    """Experts per token that each layer has loaded and prefetched."""
    one = group.find(policy, residency, link)
    moved = None if one is None else one.row.by_layer
    lines = () if moved is None else _lines(moved, [float(layer) for layer in range(len(moved.loads))], "")
    note = _note(group, residency, link)
    empty = "" if lines else _EMPTY
    return Plot("By layer", note, "Experts per token", "Layer", lines, percent=False, empty=empty)


def moved_by_place(group: ReplayGroup, policy: str, residency: float, link: str) -> Plot:
    """The same over all layers, by place in the decoding."""
    one = group.find(policy, residency, link)
    moved = None if one is None else one.row.by_band
    x = [] if one is None else [float(BANDS.index(first)) for first, _ in one.row.bands]
    lines = () if moved is None else _lines(moved, x, "o")
    places = tuple((place, f"from {BANDS[int(place)]:,}") for place in x)
    note = _note(group, residency, link)
    empty = "" if lines else _EMPTY
    return Plot("By place", note, "Experts per token", "Token", lines, places=places, percent=False, empty=empty)


def _note(group: ReplayGroup, residency: float, link: str) -> str:
    return f"SeqMoE with {residency:.0%}, {group.link_text(link)}"


def _lines(moved: Moved, x: list[float], marker: str) -> tuple[Line, ...]:
    lines = []
    for name, title, colour, look in _DRAWN:
        pairs = zip(getattr(moved, name), moved.tokens, strict=True)
        values = tuple(count / max(tokens, 1) for count, tokens in pairs)
        lines.append(Line(title, colour, tuple(x), values, marker=marker, look=look))
    return tuple(lines)
