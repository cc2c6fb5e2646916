"""Beyond the paper: where it pays to compute a missing expert on the CPU in the place of loading it, lane by lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import pandas as pd

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.report.plot import Line, Plot

LOADING, SPLIT, PANEL = "seqmoe", "seqmoe_cpu", "misses"
_COLOURS = ("#0173b2", "#d55e00", "#029e73", "#cc78bc", "#ca9161", "#56b4e9", "#949494")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# A difference below it is none: another draw of the synthetic requests changes as much.
_LEAST = 0.02
# Room over the highest line.
_ABOVE = 1.08
LANES = ("simulated", "emulated")


@dataclass(frozen=True, slots=True)
class Machine:
    """One model on one machine in one lane: tok/s by residency, loading misses and sharing them with the CPU.

    Medians of at least ``repeats`` runs.
    """

    lane: str
    model: str
    hardware: str
    loading: dict[float, float]
    split: dict[float, float]
    repeats: int

    @property
    def name(self) -> str:
        """Of model and machine, and of the lane where it is not the simulator's."""
        return f"{self.model} on {self.hardware}" + (f", {self.lane}" if self.lane != LANES[0] else "")

    @property
    def gains(self) -> dict[float, float]:
        """Share by which sharing is faster, by residency."""
        both = sorted(self.loading.keys() & self.split.keys())
        return {held: self.split[held] / self.loading[held] - 1 for held in both}


class CpuMisses:
    """Records of the two, by machine."""

    def __init__(self, records: Iterable[Record]) -> None:
        speeds: dict[tuple[str, str, str], dict[str, dict[float, list[float]]]] = {}
        for record in records:
            cell, speed = record.cell, metrics.decode_tok_s(record)
            if cell.panel == PANEL and isinstance(speed, float):
                by = speeds.setdefault((cell.lane, cell.model, cell.hardware), {})
                by.setdefault(cell.system, {}).setdefault(cell.residency, []).append(speed)
        found = [_machine(key, by.get(LOADING, {}), by.get(SPLIT, {})) for key, by in speeds.items()]
        self.machines = sorted((one for one in found if one.gains), key=lambda one: LANES.index(one.lane))

    def plots(self) -> list[Plot]:
        """Gain by residency, a line for each machine: one plot for each lane that was run."""
        return [self.plot(lane) for lane in LANES if any(machine.lane == lane for machine in self.machines)]

    def plot(self, lane: str) -> Plot:
        """The plot of one lane."""
        lines = tuple(
            Line(machine.name, _COLOURS[index % len(_COLOURS)], tuple(machine.gains), tuple(machine.gains.values()),
                 marker=_MARKERS[index % len(_MARKERS)], strong=True)
            for index, machine in enumerate(self.machines)
            if machine.lane == lane
        )  # fmt: skip
        held = sorted({x for line in lines for x in line.x})
        gains = [gain for line in lines for gain in line.y]
        return Plot(
            "Misses shared with the CPU",
            f"{lane}; gain in tok/s over SeqMoE that loads every miss",
            "Gain",
            "Experts held",
            lines,
            places=tuple((x, f"{x:.0%}") for x in held),
            ends=(min(0.0, *gains), _ABOVE * max(0.0, *gains)) if any(gains) else None,
            empty="" if lines else "nothing was run",
        )

    def sentences(self) -> list[str]:
        """On which machine and with how many experts held it pays."""
        return [_told(machine) for machine in self.machines]

    def table(self) -> pd.DataFrame:
        """Every pair."""
        return pd.DataFrame(
            [
                {"panel": PANEL, "lane": machine.lane, "model": machine.model, "hardware": machine.hardware,
                 "residency": held, "tok_s": machine.split[held], "tok_s_loading": machine.loading[held], "gain": gain}
                for machine in self.machines
                for held, gain in machine.gains.items()
            ]
        )  # fmt: skip


def _machine(key: tuple[str, str, str], loading: dict[float, list[float]], split: dict[float, list[float]]) -> Machine:
    repeats = min(len(found) for by in (loading, split) for found in by.values())
    return Machine(*key, _medians(loading), _medians(split), repeats)


def _medians(speeds: dict[float, list[float]]) -> dict[float, float]:
    return {held: median(found) for held, found in speeds.items()}


def _told(machine: Machine) -> str:
    pays = [held for held, gain in machine.gains.items() if gain >= _LEAST]
    costs = [held for held, gain in machine.gains.items() if gain <= -_LEAST]
    if not pays and not costs:
        return f"{machine.name}: computing misses on the CPU changes nothing at any residency."
    words = []
    for verb, places in (("gains", pays), ("loses", costs)):
        if places:
            sizes = [abs(machine.gains[held]) for held in places]
            held = ", ".join(f"{place:.0%}" for place in places)
            ends = dict.fromkeys(f"{size:.0%}" for size in (min(sizes), max(sizes)))
            words.append(f"{verb} {' to '.join(ends)} with {held} held")
    runs = "" if machine.lane == LANES[0] else f" (repeats: {machine.repeats})"
    return f"{machine.name}: computing misses on the CPU {' and '.join(words)}{runs}."
