"""What a session is made from, and whether it fits together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.host_misses import NEEDS_MEMORY
from seqmoe.runtime.memory_plan import plan_memory
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import SystemSpec


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session is made from, checked against the checkpoint before anything is loaded.

    ``host`` is the tier of the host pool: pageable, disk or pinned. Raises `InputError` for a system that computes
    misses where they lie, on disk.
    """

    spec: SystemSpec
    residency: float
    predictor: Path | None = None
    profile: Path | None = None
    host: str = "pageable"

    def __post_init__(self) -> None:
        if self.spec.miss == "cpu" and self.host == "disk":
            raise InputError(NEEDS_MEMORY)

    def forecaster(self, checkpoint: Checkpoint) -> Predictor | None:
        """The predictor; `InputError` for one that was made for another geometry."""
        found, geometry = predictor_for(self.spec, self.predictor), checkpoint.geometry
        if found is not None and (found.layers, found.experts) != (geometry.layers, geometry.experts):
            raise InputError(
                f"--predictor {self.predictor}: made for {found.layers} layers of {found.experts} experts, "
                f"but the model has {geometry.layers} of {geometry.experts}; give one of this model"
            )
        return found

    def check(self, checkpoint: Checkpoint, prompts: list[list[int]], tokens: int) -> None:
        """Raise `InputError` for what the model cannot take, `OutOfMemoryError` for what does not fit."""
        try:
            slots = checkpoint.geometry.slots(self.residency, max(1, len(prompts)))
            for prompt in prompts:
                checkpoint.check_lengths(prompt, tokens)
        except ValueError as error:
            raise InputError(str(error)) from None
        longest = max(map(len, prompts), default=0)
        plan_memory(
            checkpoint,
            self.host,
            None if self.spec.retention == "all" else slots,
            batch=max(1, len(prompts)),
            tokens=longest + tokens,
            prompt_tokens=longest,
        ).check()

    def check_batch(self, checkpoint: Checkpoint, batch: int, context: int) -> None:
        """As `check`, for up to ``batch`` requests of ``context`` tokens each that come and go; `batching` serves them.

        Prompts are computed one at a time; compiled steps take one request at a time as well.
        """
        if not 1 < context <= checkpoint.context:
            raise InputError(f"context = {context}: must lie in [2, {checkpoint.context}], the model's own")
        try:
            slots = checkpoint.geometry.slots(self.residency, 1 if self.spec.execution == "graph" else batch)
        except ValueError as error:
            raise InputError(str(error)) from None
        plan_memory(
            checkpoint,
            self.host,
            None if self.spec.retention == "all" else slots,
            batch=batch,
            tokens=context,
            prompt_tokens=-(-context // batch),
        ).check()


def with_execution(spec: SystemSpec, execution: str) -> SystemSpec:
    """The same system in another execution mode; an unknown one is an `InputError`."""
    try:
        return replace(spec, execution=execution)
    except ValueError as error:
        raise InputError(f"--execution: {error}") from None


def encode(tokenizer: Any, prompt: str, special: bool = True) -> list[int]:
    """Token ids of a text; `InputError` for one that a terminal has garbled.

    ``special`` puts the tokenizer's own marks around it, which a chat template has written already.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise InputError("the prompt is not valid UTF-8 text; check the terminal's encoding")
    ids: list[int] = tokenizer.encode(prompt, add_special_tokens=special)
    return ids
