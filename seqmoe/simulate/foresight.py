"""A batch's forecasts: what a predictor expects after every step, mean over the requests that run at it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import Predictor, SequenceContext
from seqmoe.predictor.early_router import OFFLINE, EarlyRouter
from seqmoe.predictor.psi import inputs_of
from seqmoe.simulate.batch import Batch
from seqmoe.simulate.policies.base import Foresight
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet

# Experts, and their probability in the next step.
Tasks = tuple[NDArray[np.int32], NDArray[np.float32]]
# The next step, and eight beyond it (paper: c = 8 in section 7.1).
LOOKAHEAD = 8
# What is prefetched of each layer: three experts more than a token needs (paper, section 6).
EXTRA = 3


def check_predictor(predictor: Predictor, traces: TraceSet) -> None:
    """Raise `InputError` for a predictor of another model, or one that cannot look a token ahead."""
    if (predictor.layers, predictor.experts) != (traces.layers, traces.experts):
        raise InputError(
            f"--predictor: made for {predictor.layers} layers of {predictor.experts} experts, but the traces of "
            f"{traces.model} have {traces.layers} of {traces.experts}; give one of this model"
        )
    if isinstance(predictor, EarlyRouter):
        raise InputError(f"--predictor: {OFFLINE}; give a predictor of another kind")


def foresight_of(batch: Batch, predictor: Predictor, traces: TraceSet) -> Foresight:
    """The forecasts of a batch (paper, section 6: the mean over the batch), every request's by itself.

    A predictor that cannot look `LOOKAHEAD` steps beyond the next one gives fewer rows.
    """
    padded: NDArray[np.float32] | None = None
    use: NDArray[np.float32] | None = None
    direct_of = getattr(predictor, "use_sequence", None)
    alive = np.maximum(batch.alive(), 1).astype(np.float32)
    for request, first in zip(batch.requests, batch.offset, strict=True):
        activation = inputs_of(predictor, request, traces)
        _, rows = predictor.forecast_sequence(activation, LOOKAHEAD, 1, SequenceContext.of(request))
        direct: NDArray[np.float32] | None = direct_of(activation) if direct_of is not None else None
        if padded is None:
            padded = np.zeros((batch.steps + 1, *rows.shape[1:]), dtype=np.float32)
            use = None if direct is None else np.zeros((batch.steps, *direct.shape[1:]), dtype=np.float32)
        share = 1 / alive[first : first + len(rows)]
        padded[first + 1 : first + 1 + len(rows)] += rows * share[:, None, None, None]
        if use is not None and direct is not None:
            use[first : first + len(rows)] += direct * share[:, None, None]
    assert padded is not None
    return Foresight(padded, predictor.ranges, use)


def tasks_of(foresight: Foresight, top_k: int) -> Tasks:
    """The k + 3 likeliest experts of every layer in the next step, the likeliest first, and their probabilities.

    Both [steps, layers, k + 3]; of equal ones the lower expert comes first.
    """
    chance = foresight.probability[:, 0]
    count = min(top_k + EXTRA, chance.shape[-1])
    likely = np.argsort(-chance, axis=-1, kind="stable")[..., :count]
    return likely.astype(np.int32), np.ascontiguousarray(np.take_along_axis(chance, likely, axis=-1))


def likely(tasks: Tasks, least: float) -> Tasks:
    """The tasks of at least that probability; -1 stands for the others."""
    if not least:
        return tasks
    expert, confidence = tasks
    return np.where(confidence >= least, expert, -1).astype(np.int32), confidence
