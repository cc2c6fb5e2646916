"""The verdict on one cell: faster, slower, same or too few repeats, by the rule of the measurement contract."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness import metrics, steady
from seqmoe.harness.comparing.pairs import Pair
from seqmoe.harness.failures import OBSTACLES
from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import Record
from seqmoe.harness.statistics import LEAST_REPEATS, Summary, compare, ratio_of_medians, summarize

FASTER, SLOWER, SAME, TOO_FEW, FAILED, MISSING = VERDICTS = (
    "faster", "slower", "same", "too few repeats", "failed", "missing",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """What is compared; ``latency`` says that less is faster."""

    name: str
    unit: str
    of: Callable[[Record], float | Missing]
    latency: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        Metric("decode_tok_s", "tok/s", metrics.decode_tok_s),
        Metric("steady_decode_tok_s", "tok/s", steady.steady_decode_tok_s),
        Metric("cold_decode_tok_s", "tok/s", steady.cold_decode_tok_s),
        Metric("ttft_s", "s", metrics.ttft_s, latency=True),
        Metric("itl_s", "s", metrics.itl_s, latency=True),
    )
}


@dataclass(frozen=True, slots=True)
class Judged:
    """``b`` beside ``a``. ``ratio`` is b's speed over a's with its 95 % interval, ``p_value`` exact and two-sided.

    ``regression`` says that b is slower by more than the suite allows, or failed where a did not. ``note`` says what
    the verdict rests on where that is less than the contract asks: how few repeats, or that they took no turns, so
    that the machine may have changed between.
    """

    pair: Pair
    verdict: str
    regression: bool
    note: str = ""
    a: Summary | None = None
    b: Summary | None = None
    ratio: Summary | None = None
    p_value: float | None = None
    interleaved: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        cell = self.pair.a[0].cell
        plain = {
            name: None if value is None else dataclasses.asdict(value)
            for name, value in (("a", self.a), ("b", self.b), ("ratio", self.ratio))
        }
        about = {"cell": cell.key, "label": self.pair.label, "suite": cell.suite, "lane": cell.lane}
        about |= {"system_a": cell.system, "system_b": self.pair.b[0].cell.system, "host": self.pair.host}
        about |= {"outliers_a": steady.outlier_note(self.pair.a), "outliers_b": steady.outlier_note(self.pair.b)}
        told = {"verdict": self.verdict, "regression": self.regression, "note": self.note}
        return about | told | plain | {"p_value": self.p_value, "interleaved": self.interleaved}


def judge(pair: Pair, metric: Metric, threshold: float) -> Judged | None:
    """Judge one cell; ``threshold`` is the share that its suite lets b be slower. None where neither has a figure."""
    a, b = (_values(side, metric) for side in (pair.a, pair.b))
    if not a and not b:
        return None
    if not a or not b:
        return _without_values(pair, metric, bool(a))
    speeds = tuple([1 / value for value in side] if metric.latency else side for side in (a, b))
    up, down = compare(speeds[1], speeds[0]), compare(speeds[0], speeds[1])
    found: dict[str, Any] = {"a": summarize(a), "b": summarize(b), "ratio": ratio_of_medians(speeds[1], speeds[0])}
    found |= {"p_value": min(up.p_value, down.p_value), "interleaved": interleaved(pair.a, pair.b)}
    fewest = min(len(a), len(b))
    if fewest < LEAST_REPEATS:
        return Judged(pair, TOO_FEW, False, f"{fewest} of {LEAST_REPEATS}", **found)
    verdict = FASTER if up.faster else SLOWER if down.faster else SAME
    note = "" if found["interleaved"] or verdict == SAME else "not interleaved"
    return Judged(pair, verdict, down.faster and down.ratio > 1 + threshold, note, **found)


def interleaved(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Whether the repeats of two sides took turns: from one to the other at least once a round."""
    order = sorted([(record.started, "a") for record in a] + [(record.started, "b") for record in b])
    turns = sum(before[1] != after[1] for before, after in itertools.pairwise(order))
    return turns >= min(len(a), len(b))


def _values(records: Sequence[Record], metric: Metric) -> list[float]:
    values = [metric.of(record) for record in records]
    return [value for value in values if not isinstance(value, Missing) and value > 0]


def _without_values(pair: Pair, metric: Metric, a_has: bool) -> Judged:
    """A side without a figure: a failure of b where a has one is a regression, an obstacle is none."""
    reasons = {"a": metric.of(pair.a[-1]), "b": metric.of(pair.b[-1])}
    note = "; ".join(f"{side}: {reason.reason}" for side, reason in reasons.items() if isinstance(reason, Missing))
    status = pair.b[-1].status
    if a_has and not status.ok and status.kind not in OBSTACLES:
        return Judged(pair, FAILED, True, note)
    return Judged(pair, MISSING, False, note)
