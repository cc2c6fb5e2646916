"""A request of the worker protocol as our own runtime reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from seqmoe.runtime.random_model.opened import RandomModel
from seqmoe.runtime.replay_runner import Replay
from seqmoe.spec.declared import build
from seqmoe.spec.errors import InputError
from seqmoe.spec.pace import Pace
from seqmoe.spec.suite import Cell

PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Options:
    """What only our runtime understands: whose pace it imitates, how much time is stretched, predictor and profile.

    Without ``dilation`` the factor is found by trying, once for all requests of one model, pace and predictor.
    ``link_ratio`` throttles a measured request's link to as many experts per full-load layer of this host.
    """

    pace: Pace | None = None
    dilation: float | None = None
    predictor: str | None = None
    profile: str | None = None
    link_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the worker protocol, validated.

    A ``replay`` has neither model nor prompts; a ``random`` model has the prompts that its engine makes.
    """

    protocol: int
    cell: Cell
    model_path: str
    model_format: str
    prompts: tuple[tuple[int, ...], ...]
    decode_tokens: int
    device: str
    threads: int
    options: Options = Options()
    replay: Replay | None = None
    random: RandomModel | None = None
    warmup: bool = True

    def __post_init__(self) -> None:
        if self.protocol != PROTOCOL:
            raise ValueError(f"protocol = {self.protocol}: this worker speaks {PROTOCOL}")
        if not self.prompts and self.replay is None and self.random is None:
            raise ValueError("prompts: none given")

    @property
    def groups(self) -> list[list[list[int]]]:
        """The prompts that decode together: ``batch`` at a time, in order."""
        starts = range(0, len(self.prompts), self.cell.batch)
        return [[list(prompt) for prompt in self.prompts[start : start + self.cell.batch]] for start in starts]


def parse_request(line: str) -> Request:
    """The request in a line; a malformed one is a ``ValueError``, since no model or system is at fault."""
    try:
        return build(Request, json.loads(line), "request")
    except InputError as error:
        raise ValueError(str(error)) from None
