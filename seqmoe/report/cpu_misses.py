"""Beyond the paper: where it pays to compute a missing expert on the CPU in the place of loading it, simulated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.report.plot import Line, Plot

LOADING, SPLIT, PANEL = "seqmoe", "seqmoe_cpu", "misses"
_COLOURS = ("#0173b2", "#d55e00", "#029e73", "#cc78bc", "#ca9161")
_MARKERS = ("o", "s", "^", "D", "v")
# A difference below it is none: another draw of the synthetic requests changes as much.
_LEAST = 0.02


@dataclass(frozen=True, slots=True)
class Machine:
    """One model on one machine: tok/s by residency, loading misses and sharing them with the CPU."""

    model: str
    hardware: str
    loading: dict[float, float]
    split: dict[float, float]

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.model} on {self.hardware}"

    @property
    def gains(self) -> dict[float, float]:
        """Share by which sharing is faster, by residency."""
        both = sorted(self.loading.keys() & self.split.keys())
        return {held: self.split[held] / self.loading[held] - 1 for held in both}


class CpuMisses:
    """Records of the two, by machine."""

    def __init__(self, records: Iterable[Record]) -> None:
        speeds: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
        for record in records:
            cell, speed = record.cell, metrics.decode_tok_s(record)
            if cell.panel == PANEL and isinstance(speed, float):
                speeds.setdefault((cell.model, cell.hardware), {}).setdefault(cell.system, {})[cell.residency] = speed
        found = (Machine(*key, by.get(LOADING, {}), by.get(SPLIT, {})) for key, by in speeds.items())
        self.machines = [machine for machine in found if machine.gains]

    def plot(self) -> Plot:
        """Gain by residency, a line for each machine."""
        lines = tuple(
            Line(machine.name, _COLOURS[index % len(_COLOURS)], tuple(machine.gains), tuple(machine.gains.values()),
                 marker=_MARKERS[index % len(_MARKERS)], strong=True)
            for index, machine in enumerate(self.machines)
        )  # fmt: skip
        held = sorted({x for line in lines for x in line.x})
        return Plot(
            "Misses shared with the CPU",
            "simulated; gain in tok/s over SeqMoE that loads every miss",
            "Gain",
            "Experts held",
            lines,
            places=tuple((x, f"{x:.0%}") for x in held),
            empty="" if lines else "nothing was run",
        )

    def sentences(self) -> list[str]:
        """On which machine and with how many experts held it pays."""
        return [_told(machine) for machine in self.machines]

    def table(self) -> pd.DataFrame:
        """Every pair."""
        return pd.DataFrame(
            [
                {"panel": PANEL, "model": machine.model, "hardware": machine.hardware, "residency": held,
                 "tok_s": machine.split[held], "tok_s_loading": machine.loading[held], "gain": gain}
                for machine in self.machines
                for held, gain in machine.gains.items()
            ]
        )  # fmt: skip


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
    return f"{machine.name}: computing misses on the CPU {' and '.join(words)}."
