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
    ("wasted", "prefetched and never needed", "#d55e00", "dashed"),
    ("late", "prefetched too late", style.MUTED, "dashed"),
)


def moved_panels(group: ReplayGroup, policy: str, residency: float, link: str) -> list[Plot]:
    """Experts per token, loaded and prefetched, by layer and over all layers by place in the decoding.

    None of a row that does not tell it, as those of earlier versions do not.
    """
    one = group.find(policy, residency, link)
    if one is None or one.row.by_layer is None or one.row.by_band is None:
        return []
    note, unit = f"{one.title} with {residency:.0%}, {group.link_text(link)}", "Experts per token"
    layers = [float(layer) for layer in range(len(one.row.by_layer.loads))]
    bands = [float(BANDS.index(first)) for first, _ in one.row.bands]
    places = tuple((place, f"from {BANDS[int(place)]:,}") for place in bands)
    return [
        Plot("By layer", note, unit, "Layer", _lines(one.row.by_layer, layers, ""), percent=False),
        Plot("By place", note, unit, "Token", _lines(one.row.by_band, bands, "o"), places=places, percent=False),
    ]


def _lines(moved: Moved, x: list[float], marker: str) -> tuple[Line, ...]:
    lines = []
    for name, title, colour, look in _DRAWN:
        pairs = zip(getattr(moved, name), moved.tokens, strict=True)
        values = tuple(count / max(tokens, 1) for count, tokens in pairs)
        # A marker would hide the gaps of a dashed line in the legend; a single place has nothing else.
        mark = marker if look == "solid" or len(x) == 1 else ""
        lines.append(Line(title, colour, tuple(x), values, marker=mark, look=look))
    return tuple(lines)
