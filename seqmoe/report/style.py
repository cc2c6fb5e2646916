"""How everything looks: one colour per system wherever it appears, one drawing per lane, and the figures' theme."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import matplotlib
import seaborn

# Three inks that the page replaces by variables of its style sheet, so that one SVG serves light and dark.
INK = "#1b2026"
MUTED = "#69727d"
GRID = "#dfe3e8"
PAPER = "#ffffff"

# Seaborn's colour-blind palette; the re-implemented LRU is a light form of FreeToken's green, whose policy it is.
COLOURS = {
    "Eager (naive)": "#ca9161",
    "LRU (FreeToken's policy)": "#7ccdb0",
    "llama.cpp": "#0173b2",
    "llama.cpp (bf16)": "#6aaed6",
    "KTransformers": "#56b4e9",
    "MoE-Infinity": "#cc78bc",
    "FreeToken": "#029e73",
    "vLLM": "#7b5ea7",
    "SeqMoE (CacheOnly)": "#f0c08a",
    "SeqMoE (Infinity)": "#e69a4c",
    "SeqMoE, learned score": "#b5a400",
    "SeqMoE, previous token": "#c44e6b",
    "SeqMoE, first-order": "#f2a65a",
    "SeqMoE, first-order online": "#de8f05",
    "SeqMoE": "#d55e00",
    "SeqMoE (CacheOnly), Mamba2": "#d9a066",
    "SeqMoE (Infinity), Mamba2": "#c47a2c",
    "SeqMoE, Mamba2": "#8f3b00",
    "SeqMoE (CacheOnly), first-order online": "#f7dc9c",
    "SeqMoE (Infinity), first-order online": "#d8b04a",
    "SeqMoE, forecast then frequency, first-order online": "#7a6200",
    "Transformers": "#c9a227",
    "FullLoad": "#949494",
    "FullLoad, eager": "#c4c4c4",
    "FullLoad, sync": "#7d7d7d",
    "FullLoad, graph": "#5a5a5a",
}
# Predictors: SeqMoE's own keeps its colour; in the same palette, and each with a marker of its own.
PREDICTORS = {
    "mamba2": ("SeqMoE (Mamba2)", "#d55e00", "o"),
    "transformer": ("Transformer probe", "#0173b2", "s"),
    "early_router": ("Early router (a layer ahead)", "#7b5ea7", "v"),
    "first_order": ("First-order statistics", "#029e73", "^"),
    "previous": ("Previous token", "#cc78bc", "D"),
    "popularity": ("Popularity", "#949494", "P"),
}
# Cache policies; bounds are in ink, what goes beyond the paper is set apart from SeqMoE's own orange.
POLICIES = {
    "seqmoe": ("SeqMoE", "#d55e00", "o"),
    "seqmoe_infinity": ("SeqMoE (Infinity)", "#cc78bc", "v"),
    "seqmoe_cache_only": ("SeqMoE (CacheOnly)", "#ca9161", "s"),
    "lru": ("LRU", "#7ccdb0", "^"),
    "lfu": ("LFU", "#0173b2", "D"),
    "prefill_hot": ("PrefillHot", "#949494", "P"),
    "belady": ("Belady (bound)", INK, ""),
    "belady_8": ("Belady-8 (oracle)", MUTED, "s"),
    "belady_f8": ("Belady-F8", "#de8f05", "o"),
    "seqmoe_learned": ("Learned score + matroid", "#7b5ea7", "o"),
    "seqmoe_likely": ("Learned + matroid, likely only", "#3f6f8f", "v"),
    "learned": ("Learned score", "#7b5ea7", "s"),
    "forecast_tail": ("Forecast, then frequency", "#b5a400", "v"),
    "seqmoe_next": ("CacheScore with next step", "#8c564b", "^"),
    "mix": ("Mix", "#c44e6b", "D"),
    "lfu_decay": ("LFU with decay", "#56b4e9", "D"),
}
# The probe on sequences as they are, and on the same ones shuffled.
ORDERED, SHUFFLED = "#0173b2", "#de8f05"
_SPARE = ("#b5a400", "#8c564b", "#3f6f8f", "#c44e6b", "#5f8a3c")


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a number comes from: how it is drawn, and what it means in one sentence."""

    name: str
    drawn: str
    meaning: str


LANES = {
    lane.name: lane
    for lane in (
        Lane("measured", "solid bar", "The real system on this host's real hardware."),
        Lane(
            "emulated",
            "dotted edge",
            "The real runtime on this host in stretched time: each layer lasts as long as on the named GPU, its link "
            "is as fast, and what a predictor computes is hidden in a layer's padding. Only the share of emulated full "
            "load means anything.",
        ),
        Lane("simulated", "hatched bar", "An event simulator in virtual time, on a hardware profile."),
        Lane("paper", "black tick", "The number that the paper prints. Not measured here."),
    )
}


def lane_text(lane: str, device: str) -> str:
    """A lane in words; a measured one names its device, so that a CPU's number is never taken for a GPU's."""
    name = {"cpu": "CPU", "cuda": "GPU"}.get(device, device)
    return f"{lane}, {name}" if lane == "measured" and name else lane


def colour(system: str) -> str:
    """The colour of a system by its title; one that is not listed takes a spare colour by its name, always the same."""
    if system in COLOURS:
        return COLOURS[system]
    return _SPARE[hashlib.sha256(system.encode()).digest()[0] % len(_SPARE)]


def in_order(systems: Iterable[str]) -> list[str]:
    """Distinct systems in drawing order: the listed ones as listed, then the others by name."""
    place = {name: index for index, name in enumerate(COLOURS)}
    return sorted(set(systems), key=lambda name: (place.get(name, len(place)), name))


def theme() -> AbstractContextManager[None]:
    """The figures' settings, for the time of a ``with`` block."""
    settings = {
        **seaborn.axes_style("ticks"),
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
        "font.size": 9.0,
        "axes.titlesize": 10.0,
        "axes.labelsize": 9.0,
        "xtick.labelsize": 9.0,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 9.0,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "axes.linewidth": 0.8,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.bottom": False,
        "ytick.left": False,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "hatch.color": INK,
        "hatch.linewidth": 0.6,
        "figure.facecolor": PAPER,
        "axes.facecolor": "none",
        # Text stays text: it can be selected and searched, and the page's dark mode can colour it.
        "svg.fonttype": "none",
        "svg.hashsalt": "seqmoe",
    }
    return matplotlib.rc_context(settings)
