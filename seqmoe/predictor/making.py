"""From traces to a predictor of any kind, with the record of how it was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import seqmoe
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.hashed import find_hash_table, without_layers
from seqmoe.predictor.kinds import TRAINED, check_kind
from seqmoe.predictor.with_hashed import WithHashed
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest
from seqmoe.traces.split import split
from seqmoe.traces.summary import column

if TYPE_CHECKING:
    from seqmoe.predictor.training import Progress

VALIDATION_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Validation:
    """Which of the sequences tell a training when to stop: a ``share`` of them, chosen by ``seed``."""

    share: float = VALIDATION_SHARE
    seed: int = 0


def make_predictor(
    kind: str,
    traces: TraceSet,
    *,
    minutes: float | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    validation: Validation | None = None,
    work: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Predictor, dict[str, Any]]:
    """A predictor made from all of ``traces``, and its record: what it saw, for how long, and with which versions.

    A kind that is trained takes ``minutes`` and perhaps further ``options`` (fields of
    `seqmoe.predictor.training.TrainingOptions`), keeps some sequences for ``validation`` (a tenth, chosen by ``seed``,
    if not told), and resumes from ``work`` if it was interrupted; the other kinds count every sequence. Layers whose
    experts follow from the token (hash routers) are taken from a table, not predicted. Raises `InputError` for an
    unknown kind, and for traces that are too few or lack what the kind needs.
    """
    check_kind(kind)
    steps = sum(column(traces.requests, "steps"))
    if not steps:
        raise InputError(f"{traces.source or traces.model}: the traces have no steps to learn from")
    started = time.perf_counter()
    table = find_hash_table(traces)
    predicted = traces if table is None else without_layers(traces, table.layers)
    predictor: Predictor
    record: dict[str, Any] = {
        "traces": digest(traces),
        "model": traces.model,
        "requests": len(traces.requests),
        "trace_tokens": steps,
        "seed": seed,
        "versions": {"seqmoe": seqmoe.__version__, "numpy": np.__version__},
    }
    if kind in TRAINED:
        # torch is slow to load: only for those who need it.
        from seqmoe.predictor.training import TrainingOptions, train_predictor

        judged_by = validation or Validation(seed=seed)
        train, held_out = split(predicted, judged_by.share, judged_by.seed)
        chosen = TrainingOptions(kind=kind, minutes=minutes, seed=seed, **(options or {}))
        predictor, trained = train_predictor(train, held_out, chosen, work=work, progress=progress)
        record = trained | record | {"versions": trained["versions"] | record["versions"]}
        # What one pass over the sequences is, so that a learning curve can be drawn over parts of an epoch too.
        record |= {"validation_requests": len(held_out.requests), "epoch_tokens": sum(column(train.requests, "steps"))}
    else:
        predictor = import_module(f"seqmoe.predictor.{kind}").fit(predicted)
    if table is not None:
        predictor = WithHashed(predictor, table)
        record["hashed_layers"] = list(table.layers)
    return predictor, record | {"seconds": time.perf_counter() - started}
