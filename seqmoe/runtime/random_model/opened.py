"""A declared model and the traces that it is to replay, held against each other and against the machine's memory."""

from __future__ import annotations

from dataclasses import dataclass

from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.memory_plan import plan_memory
from seqmoe.runtime.random_model.shape import random_checkpoint
from seqmoe.runtime.replayed import prompt_steps
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import Model
from seqmoe.spec.system import SystemSpec
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import load_traces


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A declared ``model``, cut to its first ``layers`` layers (0: all), in ``dtype``; ``traces`` say what is routed.

    ``requests`` are indices into the traces, ``warm_up`` the one that is decoded before the clock starts.
    ``predictor`` is a file, or a kind of `seqmoe.predictor.online.ONLINE`.
    """

    model: Model
    traces: str
    requests: tuple[int, ...] = ()
    warm_up: int | None = None
    layers: int = 0
    dtype: str = "bfloat16"
    predictor: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Two of the same key can share an engine."""
        return (self.model.name, self.traces, self.layers, self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """``traces`` and the ``checkpoint`` that there is not; nothing is allocated yet."""

    random: RandomModel
    traces: TraceSet
    checkpoint: Checkpoint

    @staticmethod
    def of(random: RandomModel) -> Opened:
        """Raises `InputError` for traces of another geometry, or a declaration that no class has the sizes of."""
        traces = load_traces(random.traces)
        try:
            checkpoint = random_checkpoint(random.model, traces.top_k, random.layers, random.dtype)
        except ValueError as error:
            raise InputError(str(error)) from None
        geometry = checkpoint.geometry
        if traces.experts != geometry.experts or traces.layers < geometry.layers:
            raise InputError(
                f"{random.traces}: routes {traces.layers} layers of {traces.experts} experts, which cannot be replayed "
                f"on the {geometry.layers} layers of {geometry.experts} experts of {random.model.name!r}"
            )
        return Opened(random, traces, checkpoint)

    def check_memory(self, spec: SystemSpec, residency: float, batch: int, tokens: int) -> None:
        """Raise `OutOfMemoryError` with the sum of what all of it takes, ``tokens`` new tokens in each of a batch.

        `InputError` for a residency or a length that the model cannot take.
        """
        prompts = [prompt_steps(self.traces.requests[index]) for index in self.random.requests]
        longest = max(prompts, default=0)
        try:
            slots = None if spec.retention == "all" else self.checkpoint.geometry.slots(residency, batch)
            self.checkpoint.check_lengths([0] * max(longest, 1), tokens)
        except ValueError as error:
            raise InputError(str(error)) from None
        plan = plan_memory(self.checkpoint, "pageable", slots, batch, longest + tokens, longest)
        plan.check(f"choose dtype bfloat16, a smaller residency, or --layers below {self.checkpoint.geometry.layers}")
