"""One simulated point: a system, a model, a machine, a residency and a batch in; a step's time and its counts out."""

from __future__ import annotations

from dataclasses import dataclass

from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.decode import StepTime, link_per_layer, step_time
from seqmoe.simulate.timeline.hits import StepCounts, static_counts, step_counts, without_pool
from seqmoe.simulate.timeline.oracle import Recall
from seqmoe.simulate.timeline.prefill import ttft
from seqmoe.simulate.timeline.settings import PAPER, Settings
from seqmoe.simulate.timeline.split import background_link, prices, shares
from seqmoe.simulate.timeline.systems import SimulatedSystem, simulated_system
from seqmoe.simulate.timeline.workload import Workload, synthetic_workload
from seqmoe.spec.calibration import Calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile
from seqmoe.spec.model import Model
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import claim_value, claim_values
from seqmoe.traces.synthesis.process import RoutingProcess

# Tokens of a prompt; the paper does not tell, and its data sets have some hundred.
_PROMPT = 300


def context_of(decode_tokens: int) -> int:
    """Mean context of a request while it decodes so many tokens."""
    return _PROMPT + decode_tokens // 2


# Rounds in which hits and what is left of the link settle.
_ROUNDS = 3
# The middle of the paper's decode lengths, 128-1024 and 4096-8192.
SHORT, LONG = 576, 6144


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated cell gives; ``link`` is in experts per layer of computation."""

    batch: int
    time: StepTime
    counts: StepCounts
    link: float
    ttft_s: float

    @property
    def decode_tok_s(self) -> float:
        """Decode throughput of the whole batch."""
        return self.batch / self.time.total


class Simulator:
    """Simulated cells of one calibration; workloads are drawn once and kept, one model at a time."""

    def __init__(self, home: Home, calibration: Calibration, seed: int = 0, recall: Recall | None = None) -> None:
        """``recall`` replaces the printed one of every model: what if the predictor were another."""
        self._claims = claim_values(home)
        self.calibration, self._seed, self._recall = calibration, seed, recall
        self._works: dict[tuple[int, Settings], Workload] = {}
        self._counts: dict[tuple[object, ...], StepCounts] = {}
        self._model = ""

    def run(
        self,
        system: str | SimulatedSystem,
        model: Model,
        hardware: HardwareProfile,
        residency: float,
        batch: int = 1,
        decode_tokens: int = SHORT,
        settings: Settings = PAPER,
    ) -> Simulated:
        """Simulate one cell; ``settings`` are for systems with a predictor.

        Raises `InputError` for what is not declared, or a residency too small for the batch.
        """
        row = simulated_system(system) if isinstance(system, str) else system
        context = context_of(decode_tokens)
        costs = Costs(model, hardware, self.calibration)
        settings = settings if row.predictor else PAPER
        work = self.workload(model, batch, settings)
        link = link_per_layer(costs, row, batch, context, work.distinct, settings)
        counts = self.counts(row, model, residency, batch, link, settings)
        if row.misses == "split":
            counts = self._split_counts(row, costs, residency, batch, link, settings)
        time = step_time(costs, row, counts, batch, context, settings)
        return Simulated(batch, time, counts, link, ttft(costs, row, residency))

    def _split_counts(
        self, row: SimulatedSystem, costs: Costs, residency: float, batch: int, link: float, settings: Settings
    ) -> StepCounts:
        """Counts where the link also brings, in the background, what the CPU computed: each follows from the other."""
        efficiency, left = costs.constant(row.constants, "link_efficiency", 1.0), link
        for _ in range(_ROUNDS):
            counts = self.counts(row, costs.model, residency, batch, left, settings)
            price = prices(costs, efficiency, counts, batch, link * costs.transfer() * costs.model.layers)
            left = background_link(link, shares(price, counts, costs.model.layers), price.contended)
        return self.counts(row, costs.model, residency, batch, left, settings)

    def counts(
        self,
        row: SimulatedSystem,
        model: Model,
        residency: float,
        batch: int,
        link: float,
        settings: Settings = PAPER,
    ) -> StepCounts:
        """Hits and loads of a step, remembered: they do not depend on any constant of time but the link's ratio."""
        work = self.workload(model, batch, settings)
        if row.policy in ("all", "nothing"):
            return without_pool(work, row.policy == "all")
        if row.policy == "layers":
            return static_counts(work, residency)
        rate = round(link, 6) if row.prefetches else 0.0
        key = (model.name, row.policy, row.history, residency, batch, rate, settings)
        if key not in self._counts:
            try:
                model.geometry.slots(residency, batch)
            except ValueError as error:
                raise InputError(str(error)) from None
            self._counts[key] = step_counts(work, row.policy, residency, link, row.history)
        return self._counts[key]

    def workload(self, model: Model, batch: int, settings: Settings = PAPER) -> Workload:
        """The synthetic requests of a model."""
        if model.name != self._model:
            self._works, self._model = {}, model.name
        if (batch, PAPER) not in self._works:
            self._works[batch, PAPER] = synthetic_workload(
                model.geometry, self.process(), batch, self.recall(model), self._seed
            )
        if (batch, settings) not in self._works:
            self._works[batch, settings] = self._works[batch, PAPER].with_settings(settings)
        return self._works[batch, settings]

    def process(self) -> RoutingProcess:
        """The routing process of the calibration."""
        return routing_process(self.calibration)

    def recall(self, model: Model) -> Recall:
        """What the paper prints of the model's predictor; the mean of its models for another."""
        if self._recall is not None:
            return self._recall
        known = {name: value for name, value in self._claims.items() if name.startswith("recall-k3-")}
        own = known.get(f"recall-k3-{model.title}", sum(known.values()) / len(known))
        return Recall(own / 100, claim_value(self._claims, "recall-drop-seq8") / 100)


def routing_process(calibration: Calibration) -> RoutingProcess:
    """The process whose parameters the calibration holds."""
    return RoutingProcess(
        working_set=calibration.value("routing.working_set"),
        threshold=calibration.value("routing.threshold"),
        burst=calibration.value("routing.burst"),
        burst_memory=calibration.value("routing.burst_memory"),
    )
