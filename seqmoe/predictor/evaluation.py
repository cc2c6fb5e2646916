"""Recall of a predictor on routing traces, as `measurement.md` has it: forecasts in, counts out, request by request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import Predictor, SequenceContext
from seqmoe.predictor.calibration import CalibrationCounter, ece, reliability
from seqmoe.predictor.psi import inputs_of
from seqmoe.predictor.residency import reuse_distances
from seqmoe.predictor.scores import (
    OFFSETS,
    Evaluation,
    Missing,
    MissScore,
    RolloutScore,
    SequenceScore,
    interval,
    misses_interval,
    recall,
    recall_by_step,
    recall_on_misses,
)
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.trace import DECODE, MISSING, RequestTrace, TraceSet

__all__ = [
    "Evaluation", "Missing", "ece", "evaluate", "interval", "misses_interval", "recall", "recall_by_step",
    "recall_on_misses", "reliability", "top_m_ranks",
]  # fmt: skip

RESIDENCIES = (0.15, 0.25, 0.35, 0.45)
# Of one request's forecasts. A longer one's rollouts are sampled more sparsely; its next steps never are.
_MOST_BYTES = 512 * 2**20


def evaluate(
    predictor: Predictor,
    traces: TraceSet,
    *,
    lookahead: int = 7,
    stride: int = 1,
    residencies: Sequence[float] | None = None,
    decode_only: bool = True,
    warmup: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Count what the forecasts after every ``stride``-th step had right of the next step, and of ``lookahead`` more.

    Counted are decode steps (all with ``decode_only=False``) but the first ``warmup`` of each request; rollouts where
    all their steps are. ``residencies`` are those of `RESIDENCIES` that have room for one token's experts, if not told.
    ``progress`` is told the requests done and in all. Raises `InputError` where the predictor was made for another
    geometry, or a residency that was told has no room.
    """
    if (predictor.layers, predictor.experts) != (traces.layers, traces.experts):
        raise InputError(
            f"the predictor was made for {predictor.layers} layers of {predictor.experts} experts, but the traces of "
            f"{traces.model} have {traces.layers} of {traces.experts}; give traces of the model it was trained on"
        )
    if lookahead < 0 or stride < 1 or warmup < 0:
        raise InputError(f"lookahead = {lookahead}, stride = {stride}, warmup = {warmup}: too small")
    if residencies is None:
        residencies = [share for share in RESIDENCIES if round(share * traces.layers * traces.experts) >= traces.top_k]
    counter = _Counter(predictor, traces, lookahead, stride, residencies)
    for index, request in enumerate(traces.requests):
        target = request.phase == DECODE if decode_only else np.ones(len(request.phase), dtype=np.bool_)
        target &= np.cumsum(target) > warmup
        counter.add(request, target)
        if progress is not None:
            progress(index + 1, len(traces.requests))
    return counter.result()


def top_m_ranks(probability: NDArray[np.float32], experts: NDArray[np.integer]) -> NDArray[np.int64]:
    """Place, from 0, of each of ``experts`` [n, ..., k] when ``probability`` [n, ..., experts] is sorted, best first.

    Of equal probabilities, the lower expert comes first.
    """
    ranks = np.empty(experts.shape, dtype=np.int64)
    numbers = np.arange(probability.shape[-1])
    for place in range(experts.shape[-1]):
        expert = experts[..., place, None].astype(np.int64)
        own = np.take_along_axis(probability, expert, axis=-1)
        rank = np.count_nonzero(probability > own, axis=-1)
        tied = np.nonzero(np.count_nonzero(probability == own, axis=-1) > 1)
        if len(tied[0]):
            rank[tied] += np.count_nonzero((probability[tied] == own[tied]) & (numbers < expert[tied]), axis=-1)
        ranks[..., place] = rank
    return ranks


_Forecasts = tuple[NDArray[np.int64], NDArray[np.float32]]


class _Counter:
    """The sums of an evaluation while it goes through the requests."""

    def __init__(
        self, predictor: Predictor, traces: TraceSet, lookahead: int, stride: int, residencies: Sequence[float]
    ) -> None:
        geometry = Geometry(traces.layers, traces.experts, traces.top_k)
        try:
            self._slots = {str(residency): geometry.slots(residency) for residency in residencies}
        except ValueError as error:
            raise InputError(str(error)) from None
        self._predictor = predictor
        self._traces = traces
        self._lookahead = lookahead
        self._stride = stride
        self._sequences: list[SequenceScore] = []
        self._by_step = np.zeros((lookahead + 1, 1 + OFFSETS), dtype=np.int64)
        self._misses: dict[str, list[NDArray[np.int64]]] = {name: [] for name in self._slots}
        self._calibration = CalibrationCounter()

    def add(self, request: RequestTrace, target: NDArray[np.bool_]) -> None:
        """Forecast one request and count; ``target`` bool [steps] are the steps that count."""
        if not len(target):  # nothing was decoded
            self._sequences.append(SequenceScore(0, 0, (0,) * OFFSETS, 0, (0,) * OFFSETS))
            return
        activation = inputs_of(self._predictor, request, self._traces)
        (after, near), (far_after, far) = self._forecast(activation, SequenceContext.of(request))
        seq1 = self._next_step(request, target, after, near[:, 0])
        rollout = self._rollout(request, target, far_after, far)
        self._by_step += rollout
        total = rollout.sum(0)
        score = SequenceScore(len(target), int(seq1[0]), _ints(seq1[1:]), int(total[0]), _ints(total[1:]))
        self._sequences.append(score)

    def result(self) -> Evaluation:
        """Everything that was counted."""
        traces = self._traces
        return Evaluation(
            layers=traces.layers,
            experts=traces.experts,
            top_k=traces.top_k,
            lookahead=self._lookahead,
            stride=self._stride,
            sequences=tuple(self._sequences),
            rollout_by_step=RolloutScore(_ints(self._by_step[:, 0]), tuple(map(_ints, self._by_step[:, 1:]))),
            misses={name: _miss_score(counts) for name, counts in self._misses.items()},
            calibration=self._calibration.result(),
        )

    def _forecast(self, activation: NDArray[np.float32], context: SequenceContext) -> tuple[_Forecasts, _Forecasts]:
        """Positions and forecasts for the next step, and for the rollouts; of a long request in two passes."""
        forecast = self._predictor.forecast_sequence
        rollouts = -(-len(activation) // self._stride)
        needed = rollouts * (self._lookahead + 1) * activation[:1].nbytes
        if needed <= _MOST_BYTES:
            far = near = forecast(activation, self._lookahead, self._stride, context)
        else:
            near = forecast(activation, 0, self._stride, context)
            far = forecast(activation, self._lookahead, self._stride * -(-needed // _MOST_BYTES), context)
        if not (np.isfinite(near[1].sum()) and np.isfinite(far[1].sum())):
            raise InputError("the predictor forecast a probability that is no number; train it again")
        return near, far

    def _next_step(
        self,
        request: RequestTrace,
        target: NDArray[np.bool_],
        after: NDArray[np.int64],
        probability: NDArray[np.float32],
    ) -> NDArray[np.int64]:
        """Activations and hits [6] of the next step; counts the misses and the calibration beside them."""
        chosen = after + 1 < len(target)
        chosen[chosen] = target[after[chosen] + 1]
        steps, probability = after[chosen] + 1, probability[chosen]
        experts = request.experts[steps]
        ranks, present = self._ranks(probability, experts)
        distances = reuse_distances(request.experts, self._traces.experts)[steps]
        for name, slots in self._slots.items():
            self._misses[name].append(self._count(ranks, present & (distances >= slots)))
        there = present.all(-1)
        active = np.zeros(probability.shape, dtype=np.bool_)
        np.put_along_axis(active, np.where(present, experts, experts[..., :1]).astype(np.int64), True, axis=-1)
        self._calibration.add(probability[there], active[there])
        return self._count(ranks, present)

    def _rollout(
        self,
        request: RequestTrace,
        target: NDArray[np.bool_],
        after: NDArray[np.int64],
        probability: NDArray[np.float32],
    ) -> NDArray[np.int64]:
        """Activations and hits [lookahead + 1, 6] of the rollouts whose steps are all there and all count."""
        rows = self._lookahead + 1
        sums = np.zeros((rows, 1 + OFFSETS), dtype=np.int64)
        if probability.shape[1] < rows or len(target) <= rows:
            return sums
        windows = np.lib.stride_tricks.sliding_window_view(target, rows)
        whole: NDArray[np.bool_] = np.all(windows, axis=-1)  # [t]: steps t to t + lookahead all count
        chosen = after + 1 < len(whole)
        chosen[chosen] = whole[after[chosen] + 1]
        for row in range(rows):
            ranks, present = self._ranks(probability[chosen, row], request.experts[after[chosen] + 1 + row])
            sums[row] = self._count(ranks, present)
        return sums

    @staticmethod
    def _ranks(
        probability: NDArray[np.float32], experts: NDArray[np.int16]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        present = experts != MISSING
        return top_m_ranks(probability, np.where(present, experts, 0)), present

    def _count(self, ranks: NDArray[np.int64], counted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many are counted, and how many of them are in the top k .. k + 4: int64 [6]."""
        within = [np.count_nonzero((ranks < self._traces.top_k + offset) & counted) for offset in range(OFFSETS)]
        return np.array([np.count_nonzero(counted), *within], dtype=np.int64)


def _miss_score(counts: list[NDArray[np.int64]]) -> MissScore:
    """From the counts [6] of each sequence; those without a miss are left out."""
    total = np.array(counts, dtype=np.int64).reshape(-1, 1 + OFFSETS).sum(0)
    return MissScore(int(total[0]), _ints(total[1:]), tuple(_ints(sums) for sums in counts if sums[0]))


def _ints(values: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(map(int, values))
