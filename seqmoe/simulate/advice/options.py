"""What a machine could run: each system at the largest residency that fits, simulated, with how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seqmoe.simulate.advice.limit import limit_of, link_busy
from seqmoe.simulate.advice.memory import device_memory, fits_host, host_bytes, largest_residency
from seqmoe.simulate.advice.trust import Trust, trust
from seqmoe.simulate.advice.tune import UNTUNED, Tuned, tune
from seqmoe.simulate.calibrate.errors import Judged
from seqmoe.simulate.timeline.cell import Simulated, Simulator
from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.settings import Settings
from seqmoe.simulate.timeline.systems import SimulatedSystem, simulated_system
from seqmoe.spec.hardware import HardwareProfile
from seqmoe.spec.model import Model

# Ours, then the rivals; the others of the simulator are ablations or ways of execution.
SYSTEMS = ("full", "seqmoe", "lru", "FreeToken", "KTransformers", "llama.cpp", "MoE-Infinity")
# The system that has `Settings`, and residencies at which its speed is told beside the largest.
OURS = "seqmoe"
_RESIDENCIES = (0.15, 0.25, 0.35, 0.45, 0.60, 0.75)


@dataclass(frozen=True, slots=True)
class Question:
    """A model on a machine: ``batch`` requests that each decode ``decode_tokens``; ``ram`` in GB, None if not told."""

    model: Model
    hardware: HardwareProfile
    batch: int
    decode_tokens: int
    ram: float | None


@dataclass(frozen=True, slots=True)
class Option:
    """One system. ``obstacle`` says why it cannot run; then ``found`` is None. Trusts are those of `Trust`."""

    system: str
    residency: float
    host_bytes: float
    obstacle: str = ""
    found: Simulated | None = None
    tuned: Tuned = UNTUNED
    limit: str = ""
    link_busy: float = 0.0
    decode: Trust | None = None
    ttft: Trust | None = None

    @property
    def decode_range(self) -> tuple[float, float]:
        """Tok/s in which eight of ten held-out bars would lie."""
        assert self.found is not None and self.decode is not None
        return self.found.decode_tok_s * self.decode.low, self.found.decode_tok_s * self.decode.high

    @property
    def ttft_range(self) -> tuple[float, float]:
        """Seconds in which eight of ten held-out bars would lie."""
        assert self.found is not None and self.ttft is not None
        return self.found.ttft_s * self.ttft.low, self.found.ttft_s * self.ttft.high


class Options:
    """Answers to one question, by two draws of synthetic requests: settings are chosen on one and judged on both."""

    def __init__(
        self, question: Question, simulator: Simulator, other: Simulator, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """``tell`` is told what is being simulated."""
        self._question, self._simulator, self._other, self._tell = question, simulator, other, tell
        self.costs = Costs(question.model, question.hardware, simulator.calibration)

    def all(self, judged: Sequence[Judged]) -> list[Option]:
        """Every system of `SYSTEMS`, the fastest first and those that cannot run last."""
        found = [self.of(name, judged) for name in SYSTEMS]
        return sorted(found, key=lambda option: -option.found.decode_tok_s if option.found else 1.0)

    def of(self, name: str, judged: Sequence[Judged]) -> Option:
        """One system at the largest residency that fits."""
        self._tell(name)
        row, asked = simulated_system(name), self._question
        residency = largest_residency(self.costs, row, asked.batch, asked.decode_tokens)
        needed = host_bytes(self.costs, row, residency)
        obstacle = self._obstacle(row, residency, needed)
        if obstacle:
            return Option(name, residency, needed, obstacle)
        tuned = self._tuned(residency) if name == OURS else UNTUNED
        found = self._run(self._simulator, row, residency, tuned.settings)
        return Option(
            system=name,
            residency=residency,
            host_bytes=needed,
            found=found,
            tuned=tuned,
            limit=limit_of(self.costs, found),
            link_busy=link_busy(self.costs, found),
            decode=trust(judged, name, ttft=False),
            ttft=trust(judged, name, ttft=True),
        )

    def by_residency(self, option: Option) -> list[tuple[float, float]]:
        """Residency and tok/s of an option's system, at some residencies up to its own."""
        row = simulated_system(option.system)
        if row.policy == "all":
            return []
        least = self.costs.model.geometry.least_slots(self._question.batch) / self.costs.model.geometry.total_experts
        places = [place for place in _RESIDENCIES if least <= place < option.residency]
        return [(place, self._run(self._simulator, row, place, option.tuned.settings).decode_tok_s)
                for place in (*places, option.residency)]  # fmt: skip

    def _obstacle(self, row: SimulatedSystem, residency: float, needed: float) -> str:
        if self._question.model.name in row.unsupported:
            return "does not run this model in the paper"
        if residency == 0:
            return "the GPU's memory does not hold the non-experts, caches and one layer's active experts"
        if row.policy == "all" and residency < 1:
            room = device_memory(self.costs, row, self._question.batch, self._question.decode_tokens)
            return f"the GPU has {room.for_experts / 1e9:.1f} GB left for experts, {residency:.0%} of them"
        if fits_host(needed, self._question.ram) is False:
            return f"the host needs {needed / 1e9:.0f} GB for experts and has {self._question.ram:g} GB"
        return ""

    def _tuned(self, residency: float) -> Tuned:
        row = simulated_system(OURS)
        runs = [
            lambda settings, simulator=simulator: self._run(simulator, row, residency, settings).decode_tok_s
            for simulator in (self._simulator, self._other)
        ]
        return tune(*runs)

    def _run(self, simulator: Simulator, row: SimulatedSystem, residency: float, settings: Settings) -> Simulated:
        asked = self._question
        return simulator.run(row, asked.model, asked.hardware, residency, asked.batch, asked.decode_tokens, settings)
