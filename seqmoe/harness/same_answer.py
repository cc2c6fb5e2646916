"""Offloading must not change what the model says: greedy tokens are held to those of full load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seqmoe.harness.conditions import model_digest
from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import Observations, Record, Status
from seqmoe.spec.suite import Cell
from seqmoe.spec.system import SYSTEMS

FULL = "full"
_WORKLOAD = ("model", "routing", "dataset", "prompts", "decode_tokens", "batch", "seed", "weights", "layers")


@dataclass(frozen=True, slots=True)
class Answer:
    """Agreement with full load: share of prompts with identical tokens, and mean length of the common prefix.

    ``first`` is (prompt, token) of the first difference, None where there is none.
    """

    identical: float
    common_prefix: float
    first: tuple[int, int] | None

    @property
    def same(self) -> bool:
        """Whether every token of every prompt agrees."""
        return self.first is None


def workload(cell: Cell) -> tuple[object, ...]:
    """What decides the answer: two cells with the same one must say the same."""
    return tuple(getattr(cell, name) for name in _WORKLOAD)


def of_device(records: Iterable[Record], device: str | None) -> list[Record]:
    """The records that were made on such a device: others may round otherwise, and hold weights in another type."""
    return [record for record in records if record.environment.get("device") == device]


def full_load(records: Iterable[Record], cell: Cell, model: str | None) -> Record | None:
    """The newest full-load result of the cell's workload on the weights of digest ``model``, in whichever lane.

    One in the cell's own mode of execution goes before others: on a GPU modes may round differently.
    """
    found = None
    for record in records:
        same = workload(record.cell) == workload(cell) and model_digest(record.environment) == model
        if not (same and record.cell.system == FULL and record.status.ok):
            continue
        if found is None or record.cell.execution == cell.execution or found.cell.execution != cell.execution:
            found = record
    return found


def compare(record: Record, full: Record | None) -> Answer | Missing:
    """Hold one result to full load."""
    if not record.status.ok:
        return Missing(str(record.status))
    if full is None:
        return Missing("full load of this workload has not been run")
    return compare_tokens(record.observations, full.observations)


def compare_tokens(ours: Observations, theirs: Observations) -> Answer | Missing:
    """Compare token by token; `Missing` where a system hides its tokens."""
    prefixes, first = [], None
    for index, (a, b) in enumerate(zip(ours.prompts, theirs.prompts, strict=True)):
        if None in a.tokens or None in b.tokens:
            return Missing("the system does not tell its token ids")
        prefixes.append(_common_prefix(a.tokens, b.tokens))
        if a.tokens != b.tokens and first is None:
            first = (index, prefixes[-1])
    same = [p.tokens == q.tokens for p, q in zip(ours.prompts, theirs.prompts, strict=True)]
    return Answer(sum(same) / len(same), sum(prefixes) / len(prefixes), first)


def verdict(
    cell: Cell, status: Status, observations: Observations, records: Iterable[Record], model: str | None
) -> Status:
    """The status after the check: a result of our own runtime that differs from full load is ``invalid``.

    ``records`` are searched for full load on the same weights, of digest ``model``; full load itself is held to none of
    them. Wrapped systems have arithmetic of their own; their agreement is reported and does not decide.
    """
    if not status.ok or cell.system not in SYSTEMS:
        return status
    if observations.stats.get("same_answer") is False:
        return Status("invalid", "answer differs from full load in the same process")
    full = full_load(records, cell, model) if cell.system != FULL else None
    found = compare_tokens(observations, full.observations) if full is not None else None
    if isinstance(found, Answer) and found.first is not None:
        prompt, token = found.first
        return Status(
            "invalid",
            f"answer differs from full load at token {token} of prompt {prompt} "
            f"({found.identical:.0%} of the prompts are identical)",
            "if the software has changed since full load ran, run both again with --no-resume",
        )
    return status


def _common_prefix(a: Sequence[int | None], b: Sequence[int | None]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
