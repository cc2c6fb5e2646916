"""What an evaluation observed, as plain counts, and the figures that are pure functions of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.calibration import Calibration
from seqmoe.spec.errors import InputError, nearest

SCHEMA = 1
# Recall is counted among the predicted top k, k + 1, ... k + 4.
OFFSETS = 5
LONG = 4096
_RESAMPLES = 2000

Which = Literal["seq1", "seq8", "long"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A figure that cannot be told, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class SequenceScore:
    """Counts of one sequence of ``length`` steps: activations that were to be forecast, and those in the top m.

    ``hits`` and ``rollout_hits`` have one entry per m = k .. k + 4. The first two are of the next step (Seq-1), the
    ``rollout`` ones sums over all steps of the rollouts that end within the sequence (Seq-8).
    """

    length: int
    activations: int
    hits: tuple[int, ...]
    rollout_activations: int
    rollout_hits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RolloutScore:
    """The same sums by step of the rollout: ``activations`` [lookahead + 1], ``hits`` [lookahead + 1][5]."""

    activations: tuple[int, ...]
    hits: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class MissScore:
    """Counts of the next step among the experts that an LRU pool did not hold: ``needed``, and ``hits`` [5].

    ``sequences`` [n][6] are the two of each sequence that missed any; empty in what earlier versions wrote.
    """

    needed: int
    hits: tuple[int, ...]
    sequences: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that was counted of one predictor on one set of traces; ``misses`` by residency, as "0.15".

    ``calibration`` is over every expert of every layer, one step ahead. Layers that the traces lack count nowhere.
    """

    layers: int
    experts: int
    top_k: int
    lookahead: int
    stride: int
    sequences: tuple[SequenceScore, ...]
    rollout_by_step: RolloutScore
    misses: Mapping[str, MissScore]
    calibration: Calibration

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"schema": SCHEMA} | asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Evaluation:
        """What `as_dict` gave; anything else, or what a newer version gave, is an `InputError`."""
        if values.get("schema", 0) > SCHEMA:
            raise InputError(f"evaluation schema {values['schema']}; this version reads {SCHEMA}: update seqmoe")
        names = {field.name for field in fields(Evaluation)}
        for name in values:
            if name not in names | {"schema"}:
                raise InputError(f"evaluation: unknown field {name!r}; {nearest(name, names)}")
        try:
            plain = {name: values[name] for name in names}
            return Evaluation(
                **plain
                | {
                    "sequences": tuple(SequenceScore(**_tuples(score)) for score in plain["sequences"]),
                    "rollout_by_step": RolloutScore(**_tuples(plain["rollout_by_step"])),
                    "misses": {name: MissScore(**_tuples(score)) for name, score in plain["misses"].items()},
                    "calibration": Calibration(**_tuples(plain["calibration"])),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"evaluation: not what an evaluation wrote: {error!r}") from None


def recall(evaluation: Evaluation, m_offset: int, which: Which = "seq1") -> float | Missing:
    """Share of the activations in the predicted top k + ``m_offset`` (0..4).

    ``seq1``: one step ahead; ``seq8``: mean over the steps of the rollout (eight with the default lookahead of 7);
    ``long``: one step ahead, in sequences of more than 4,096 steps.
    """
    counts = _counts(evaluation, m_offset, which)
    return counts if isinstance(counts, Missing) else float(counts[:, 1].sum() / counts[:, 0].sum())


def interval(
    evaluation: Evaluation, m_offset: int, which: Which = "seq1", seed: int = 0
) -> tuple[float, float] | Missing:
    """95 % percentile bootstrap of the recall, over sequences; the same evaluation and seed give the same interval.

    A single sequence has no spread: its interval is its recall.
    """
    counts = _counts(evaluation, m_offset, which)
    if isinstance(counts, Missing):
        return counts
    return _bootstrap(counts, seed)


def recall_by_step(evaluation: Evaluation, m_offset: int) -> list[float] | Missing:
    """Recall of each step of the rollout, from the next one on."""
    score = evaluation.rollout_by_step
    if not score.activations or not min(score.activations):
        return Missing(_no_rollout(evaluation))
    pairs = zip(score.hits, score.activations, strict=True)
    return [hits[_checked(m_offset)] / activations for hits, activations in pairs]


def recall_on_misses(evaluation: Evaluation, residency: float, m_offset: int) -> float | Missing:
    """Share of the next step's experts in the predicted top m, among those that an LRU pool did not hold."""
    score = evaluation.misses.get(str(residency))
    if score is None:
        return Missing(f"not counted at residency {residency}; counted at: {', '.join(evaluation.misses) or 'none'}")
    if not score.needed:
        return Missing(f"no expert was missed at residency {residency}")
    return score.hits[_checked(m_offset)] / score.needed


def misses_interval(
    evaluation: Evaluation, residency: float, m_offset: int, seed: int = 0
) -> tuple[float, float] | Missing:
    """95 % percentile bootstrap of `recall_on_misses`, over the sequences that missed any."""
    value = recall_on_misses(evaluation, residency, m_offset)
    if isinstance(value, Missing):
        return value
    counts = np.array(evaluation.misses[str(residency)].sequences, dtype=np.int64)
    if not len(counts):
        return Missing("an earlier version did not count the sequences apart")
    return _bootstrap(counts[:, [0, 1 + m_offset]], seed)


def _bootstrap(counts: NDArray[np.int64], seed: int) -> tuple[float, float]:
    """Of the ratio of the second column to the first [n, 2], over the rows."""
    picks = np.random.default_rng(seed).multinomial(len(counts), np.full(len(counts), 1 / len(counts)), _RESAMPLES)
    sums = picks @ counts
    low, high = np.percentile(sums[:, 1] / sums[:, 0], [2.5, 97.5])
    return float(low), float(high)


def _counts(evaluation: Evaluation, m_offset: int, which: Which) -> NDArray[np.int64] | Missing:
    """Activations and hits [sequences, 2] of the sequences that have any."""
    place = _checked(m_offset)
    chosen = evaluation.sequences
    if which == "long":
        chosen = tuple(score for score in chosen if score.length > LONG)
        if not chosen:
            return Missing(f"no sequence has more than {LONG:,} tokens")
    if which == "seq8":
        counts = [(score.rollout_activations, score.rollout_hits[place]) for score in chosen]
    else:
        counts = [(score.activations, score.hits[place]) for score in chosen]
    found = [pair for pair in counts if pair[0]]
    if not found:
        return Missing(_no_rollout(evaluation) if which == "seq8" else "no sequence has two steps in a row to count")
    return np.array(found, dtype=np.int64)


def _no_rollout(evaluation: Evaluation) -> str:
    steps = evaluation.lookahead + 1
    return f"no sequence is long enough for {steps} steps, or the predictor cannot look that far"


def _checked(m_offset: int) -> int:
    if not 0 <= m_offset < OFFSETS:
        raise ValueError(f"m_offset = {m_offset}: must lie in 0..{OFFSETS - 1}")
    return m_offset


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as tuples, all the way down."""

    def convert(value: Any) -> Any:
        return tuple(map(convert, value)) if isinstance(value, list | tuple) else value

    return {name: convert(value) for name, value in values.items()}
