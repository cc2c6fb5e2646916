"""Figure 6's bars as points of the simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from seqmoe.simulate.timeline.cell import LONG, SHORT, Simulated, Simulator
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile, load_hardware
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import Bar, figure6_bars

# The paper's names of its machines, and the residency of its batches.
HARDWARE = {"RTX 4090": "rtx4090", "RTX 5090": "rtx5090", "RTX PRO 6000": "rtx-pro-6000"}
BATCH_RESIDENCY = 0.35
_FULL = "FullLoad"
TTFT = "ttft"


@dataclass(frozen=True, slots=True)
class Point:
    """One bar, and what is simulated for it."""

    bar: Bar
    system: str
    model: Model
    hardware: HardwareProfile
    residency: float
    batch: int
    decode_tokens: int

    @property
    def printed(self) -> float:
        """The bar's value."""
        if self.bar.value is None:
            raise ValueError(f"{self.bar}: a cross has no value")
        return self.bar.value

    def value(self, simulator: Simulator) -> float:
        """Tok/s, or seconds to the first token."""
        found = self.run(simulator)
        return found.ttft_s if self.bar.panel == TTFT else found.decode_tok_s

    def run(self, simulator: Simulator) -> Simulated:
        """The simulated cell."""
        return simulator.run(self.system, self.model, self.hardware, self.residency, self.batch, self.decode_tokens)


def points(home: Home) -> tuple[Point, ...]:
    """A point for every bar that is no cross, models together, so that each is drawn once.

    Full load is printed at every residency, but it is one bar of its panel.
    """
    models = {model.title: model for model in (load_model(home, path.stem) for path in _models(home))}
    profiles = {title: load_hardware(home, name) for title, name in HARDWARE.items()}
    found, full = [], set()
    for bar in figure6_bars(home):
        if bar.value is None:
            continue
        if bar.model not in models or bar.hardware not in profiles:
            raise InputError(f"fig6.csv: {bar.model} on {bar.hardware}: declare both in suites/")
        if bar.system == _FULL and (bar.panel, bar.model) in full:
            continue
        full |= {(bar.panel, bar.model)} if bar.system == _FULL else set()
        batches = bar.axis == "batch_size"
        point = Point(
            bar=bar,
            system="full" if bar.system == _FULL else bar.system if bar.system != "SeqMoE" else "seqmoe",
            model=models[bar.model],
            hardware=profiles[bar.hardware],
            residency=BATCH_RESIDENCY if batches else bar.x,
            batch=int(bar.x) if batches else 1,
            decode_tokens=LONG if bar.panel == "decode-long" else SHORT,
        )
        found.append(replace(point, residency=1.0) if point.system == "full" else point)
    return tuple(sorted(found, key=lambda point: point.model.name))


def _models(home: Home) -> list[Path]:
    return sorted((home.suites / "models").glob("*.toml"))
